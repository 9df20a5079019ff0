// Channels change their places, each order with the same probability.
#include <array>
#include <utility>

#include "pixels/pixels.h"

namespace standpipe {
namespace {

void permute(const PixelStage&, Draws& draws, Canvas& canvas, uint8_t*) noexcept {
    std::array<uint8_t, 3> from{0, 1, 2};
    for (size_t i = 0; i < 2; ++i) std::swap(from[i], from[i + draws.below(3 - i)]);
    if (!canvas.has_colours()) return;
    const Pixels pixels = canvas.pixels();
    uint8_t* const end = pixels.data + pixels.bytes();
    for (uint8_t* rgb = pixels.data; rgb != end; rgb += 3) {
        const std::array<uint8_t, 3> old{rgb[0], rgb[1], rgb[2]};
        for (size_t c = 0; c < 3; ++c) rgb[c] = old[from[c]];
    }
}

}  // namespace

constinit const PixelKind kPermute{"permute", 0, no_scratch, permute};

}  // namespace standpipe
