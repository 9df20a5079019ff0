// A picture is blended with its grey one, as Pillow's ImageEnhance.Color does it.
#include "pixels/operations.h"

namespace standpipe {

void saturate(Canvas& canvas, float factor) noexcept {
    if (!canvas.has_colours()) return;
    const Pixels pixels = canvas.pixels();
    uint8_t* const end = pixels.data + pixels.bytes();
    for (uint8_t* rgb = pixels.data; rgb != end; rgb += 3) {
        const int level = grey(rgb[0], rgb[1], rgb[2]);
        for (size_t c = 0; c < 3; ++c) rgb[c] = blended(level, rgb[c], factor);
    }
}

// Two numbers: the lowest factor and the highest.
constinit const PixelKind kSaturation{"saturation", 2, no_scratch, by_factor<saturate>};

}  // namespace standpipe
