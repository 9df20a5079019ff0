// A picture upside down.
#include <algorithm>

#include "pixels/pixels.h"

namespace standpipe {
namespace {

void flip(const PixelStage&, Draws&, Canvas& canvas, uint8_t*) noexcept {
    const Pixels pixels = canvas.pixels();
    const size_t row = size_t{3} * static_cast<size_t>(pixels.width);
    for (int y = 0; y < pixels.height / 2; ++y) {
        uint8_t* const upper = pixels.rgb + static_cast<size_t>(y) * row;
        std::swap_ranges(upper, upper + row, pixels.rgb + static_cast<size_t>(pixels.height - 1 - y) * row);
    }
}

}  // namespace

extern const PixelKind kFlip;
constinit const PixelKind kFlip{"flip", 0, no_scratch, flip, true};

}  // namespace standpipe
