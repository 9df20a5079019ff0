// A picture blended with its smoothed self, as Pillow's ImageEnhance.Sharpness does it.
#include <algorithm>
#include <cstring>
#include <utility>

#include "pixels/operations.h"

namespace standpipe {
namespace {

// Changes a row of pixels of `step` bytes between two others, but its first and last pixel: each byte's
// neighbourhood, weighted with (1 1 1, 1 5 1, 1 1 1) / 13 and rounded, which is never half way; then blended
// with the byte itself, in float and truncated. `factor` is at most 10^6 either way. Compilers vectorise it,
// since nothing overlaps `out` and a product stands for the division (exact up to 13 * 255 + 6).
void sharpen_row(const uint8_t* __restrict above, const uint8_t* __restrict at,
                 const uint8_t* __restrict below, size_t bytes, size_t step, float factor,
                 uint8_t* __restrict out) noexcept {
    for (size_t i = step; i + step < bytes; ++i) {
        const int sum = above[i - step] + above[i] + above[i + step] + at[i - step] + 5 * at[i] +
                        at[i + step] + below[i - step] + below[i] + below[i + step];
        const int smooth = (sum + 6) * 20165 >> 18;
        const int value =
            static_cast<int>(static_cast<float>(smooth) + factor * static_cast<float>(at[i] - smooth));
        out[i] = static_cast<uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
    }
}

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
        sharpen_row(above, at, out + bytes, bytes, static_cast<size_t>(pixels.channels), factor, out);
    }
}

namespace {

// One number: the factor.
void apply(const PixelStage& stage, Draws&, Canvas& canvas, uint8_t* scratch) noexcept {
    sharpen(canvas, static_cast<float>(stage.parameters[0]), scratch);
}

}  // namespace

constinit const PixelKind kSharpness{"sharpness", 1, scratch_bytes, apply};

}  // namespace standpipe
