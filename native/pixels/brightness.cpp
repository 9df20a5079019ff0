// A picture is blended with black, as Pillow's ImageEnhance.Brightness does it.
#include "pixels/operations.h"
#include "pixels/tables.h"

namespace standpipe {

void brighten(Pixels pixels, float factor) noexcept {
    ByteTable table;
    for (int value = 0; value < 256; ++value) table[value] = blended(0, value, factor);
    look_up(pixels, table);
}

namespace {

// Two numbers: the lowest factor and the highest.
void apply(const PixelStage& stage, Draws& draws, Pixels pixels, uint8_t*) noexcept {
    brighten(pixels, static_cast<float>(drawn_factor(stage, draws)));
}

}  // namespace

extern const PixelKind kBrightness;
constinit const PixelKind kBrightness{"brightness", 2, no_scratch, apply};

}  // namespace standpipe
