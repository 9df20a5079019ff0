// Sets each channel to the pixel's grey level, as Pillow's convert('L') computes it.
#include "pixels/pixels.h"

namespace standpipe {
namespace {

void grayscale(const PixelStage&, Draws&, Canvas& canvas, uint8_t*) noexcept {
    const Pixels pixels = canvas.pixels();
    uint8_t* const end = pixels.rgb + pixels.bytes();
    for (uint8_t* rgb = pixels.rgb; rgb != end; rgb += 3)
        rgb[0] = rgb[1] = rgb[2] = grey(rgb[0], rgb[1], rgb[2]);
}

}  // namespace

extern const PixelKind kGrayscale;
constinit const PixelKind kGrayscale{"grayscale", 0, no_scratch, grayscale};

}  // namespace standpipe
