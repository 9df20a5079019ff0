// A picture is blended with black, as Pillow's ImageEnhance.Brightness does it.
#include "pixels/operations.h"

namespace standpipe {

void brighten(Canvas& canvas, float factor) noexcept {
    ByteTable table;
    for (int value = 0; value < 256; ++value) table[value] = blended(0, value, factor);
    canvas.look_up(table);
}

namespace {

// Two numbers: the lowest factor and the highest.
void apply(const PixelStage& stage, Draws& draws, Canvas& canvas, uint8_t*) noexcept {
    brighten(canvas, static_cast<float>(drawn_factor(stage, draws)));
}

}  // namespace

extern const PixelKind kBrightness;
constinit const PixelKind kBrightness{"brightness", 2, no_scratch, apply};

}  // namespace standpipe
