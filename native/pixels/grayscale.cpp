// Grey levels, as Pillow's convert('L') computes them: in all three channels, or in one that is left.
#include "pixels/pixels.h"

namespace standpipe {
namespace {

void grayscale(const PixelStage&, Draws&, Canvas& canvas, uint8_t*) noexcept {
    if (!canvas.has_colours()) return;
    const Pixels pixels = canvas.pixels();
    uint8_t* const end = pixels.data + pixels.bytes();
    for (uint8_t* rgb = pixels.data; rgb != end; rgb += 3)
        rgb[0] = rgb[1] = rgb[2] = grey(rgb[0], rgb[1], rgb[2]);
}

void to_grey(const PixelStage&, Draws&, Canvas& canvas, uint8_t*) noexcept { canvas.to_grey(); }

}  // namespace

constinit const PixelKind kGrayscale{"grayscale", 0, no_scratch, grayscale};
constinit const PixelKind kToGrey{"to_grey", 0, no_scratch, to_grey};

}  // namespace standpipe
