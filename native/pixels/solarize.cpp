// Values from a threshold on are subtracted from 255, as Pillow's ImageOps.solarize does it.
#include "pixels/tables.h"

namespace standpipe {
namespace {

// One number: the threshold.
void solarize(const PixelStage& stage, Draws&, Pixels pixels, uint8_t*) noexcept {
    ByteTable table;
    for (int value = 0; value < 256; ++value)
        table[value] = static_cast<uint8_t>(value < stage.parameters[0] ? value : 255 - value);
    look_up(pixels, table);
}

}  // namespace

extern const PixelKind kSolarize;
constinit const PixelKind kSolarize{"solarize", 1, no_scratch, solarize};

}  // namespace standpipe
