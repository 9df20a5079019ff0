// A picture upside down.
#include "pixels/tables.h"

namespace standpipe {
namespace {

void flip(const PixelStage&, Draws&, Pixels pixels, uint8_t*) noexcept {
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
