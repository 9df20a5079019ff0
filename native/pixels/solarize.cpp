// Values from a threshold on are subtracted from 255, as Pillow's ImageOps.solarize does it.
#include "pixels/operations.h"
#include "pixels/tables.h"

namespace standpipe {

void solarize(Pixels pixels, double threshold) noexcept {
    ByteTable table;
    for (int value = 0; value < 256; ++value)
        table[value] = static_cast<uint8_t>(value < threshold ? value : 255 - value);
    look_up(pixels, table);
}

namespace {

// One number: the threshold.
void apply(const PixelStage& stage, Draws&, Pixels pixels, uint8_t*) noexcept {
    solarize(pixels, stage.parameters[0]);
}

}  // namespace

extern const PixelKind kSolarize;
constinit const PixelKind kSolarize{"solarize", 1, no_scratch, apply};

}  // namespace standpipe
