// The moves of a picture's pixels on their way to a row, without the pixels.
#pragma once

#include <vector>

#include "image/rows.h"

namespace standpipe {

// Sets `moves` to what the geometric transforms of a head do to a picture of `source`, in order. None, if it
// can't be made into a row.
void trace(const Program& program, size_t head, Size source, const SampleKey& key, std::vector<Move>& moves);

}  // namespace standpipe
