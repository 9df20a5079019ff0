// A picture blended with its smoothed self, as Pillow's ImageEnhance.Sharpness does it.
#include <algorithm>
#include <cstring>
#include <utility>

#include "pixels/operations.h"

namespace standpipe {
namespace {

// Two rows as they were before they were changed.
size_t scratch_bytes(const PixelStage&, const Pixels& form) noexcept { return 2 * form.row_bytes(); }

}  // namespace

void sharpen(Canvas& canvas, float factor, uint8_t* scratch) noexcept {
    if (factor == 1 || canvas.width() < 3 || canvas.height() < 3) return;
    const Pixels pixels = canvas.pixels();
    const size_t bytes = pixels.row_bytes();
    uint8_t *above = scratch, *at = scratch + bytes;
    std::memcpy(at, pixels.data, bytes);
    for (int y = 1; y + 1 < pixels.height; ++y) {
        uint8_t* out = pixels.data + static_cast<size_t>(y) * bytes;
        std::swap(above, at);
        std::memcpy(at, out, bytes);
        canvas.kernels().sharpen(above, at, out + bytes, bytes, static_cast<size_t>(pixels.channels), factor,
                                 out);
    }
}

namespace {

// One number: the factor.
void apply(const PixelStage& stage, Draws&, Canvas& canvas, uint8_t* scratch) noexcept {
    sharpen(canvas, static_cast<float>(stage.parameters[0]), scratch);
}

}  // namespace

extern const PixelKind kSharpness;
constinit const PixelKind kSharpness{"sharpness", 1, scratch_bytes, apply};

}  // namespace standpipe
