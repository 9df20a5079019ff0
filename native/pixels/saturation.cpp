// A picture is blended with its grey one, as Pillow's ImageEnhance.Color does it.
#include "pixels/operations.h"
#include "pixels/tables.h"

namespace standpipe {

void saturate(Pixels pixels, float factor) noexcept {
    uint8_t* const end = pixels.rgb + pixels.bytes();
    for (uint8_t* rgb = pixels.rgb; rgb != end; rgb += 3) {
        const int level = grey(rgb);
        for (size_t c = 0; c < 3; ++c) rgb[c] = blended(level, rgb[c], factor);
    }
}

namespace {

// Two numbers: the lowest factor and the highest.
void apply(const PixelStage& stage, Draws& draws, Pixels pixels, uint8_t*) noexcept {
    saturate(pixels, static_cast<float>(drawn_factor(stage, draws)));
}

}  // namespace

extern const PixelKind kSaturation;
constinit const PixelKind kSaturation{"saturation", 2, no_scratch, apply};

}  // namespace standpipe
