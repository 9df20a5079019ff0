// A picture upside down.
#include <algorithm>

#include "pixels/pixels.h"

namespace standpipe {
namespace {

void flip(const PixelStage&, Draws&, Canvas& canvas, uint8_t*) noexcept {
    if (std::vector<Move>* const moves = canvas.moves()) {
        moves->push_back({{1, 0, 0, 0, -1, static_cast<double>(canvas.height()), 0, 0, 1},
                          canvas.height(),
                          canvas.width()});
        return;
    }
    const Pixels pixels = canvas.pixels();
    const size_t row = pixels.row_bytes();
    for (int y = 0; y < pixels.height / 2; ++y) {
        uint8_t* const upper = pixels.data + static_cast<size_t>(y) * row;
        std::swap_ranges(upper, upper + row, pixels.data + static_cast<size_t>(pixels.height - 1 - y) * row);
    }
}

}  // namespace

constinit const PixelKind kFlip{"flip", 0, no_scratch, flip, true};

}  // namespace standpipe
