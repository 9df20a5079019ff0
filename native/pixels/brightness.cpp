// A picture is blended with black, as Pillow's ImageEnhance.Brightness does it.
#include "pixels/tables.h"

namespace standpipe {
namespace {

// Two numbers: the lowest factor and the highest.
void brighten(const PixelStage& stage, Draws& draws, Pixels pixels, uint8_t*) noexcept {
    const auto factor = static_cast<float>(drawn_factor(stage, draws));
    ByteTable table;
    for (int value = 0; value < 256; ++value) table[value] = blended(0, value, factor);
    look_up(pixels, table);
}

}  // namespace

extern const PixelKind kBrightness;
constinit const PixelKind kBrightness{"brightness", 2, no_scratch, brighten};

}  // namespace standpipe
