// A program of any inputs, stages, heads and formats that Python could build, for the fuzz target of rows.
#pragma once

#include "image/rows.h"

namespace standpipe {

// The class number of pixels that masks get beyond their borders.
constexpr uint8_t kMaskOutside = 255;

// A function of `draws`. Now and then a head's row has another size than what its stages make. `has_pixels`:
// stages may change pixels, not only their places.
Program any_program(Draws& draws, const DecodeLimits& limits, bool has_pixels);

}  // namespace standpipe
