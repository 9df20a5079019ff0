// Values from a threshold on are subtracted from 255, as Pillow's ImageOps.solarize does it.
#include "pixels/operations.h"

namespace standpipe {

void solarize(Canvas& canvas, double threshold) noexcept {
    ByteTable table;
    for (int value = 0; value < 256; ++value)
        table[value] = static_cast<uint8_t>(value < threshold ? value : 255 - value);
    canvas.look_up(table);
}

namespace {

// One number: the threshold.
void apply(const PixelStage& stage, Draws&, Canvas& canvas, uint8_t*) noexcept {
    solarize(canvas, stage.parameters[0]);
}

}  // namespace

constinit const PixelKind kSolarize{"solarize", 1, no_scratch, apply};

}  // namespace standpipe
