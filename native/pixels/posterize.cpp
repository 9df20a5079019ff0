// The lower bits of each value become zero, as Pillow's ImageOps.posterize does it.
#include "pixels/operations.h"

namespace standpipe {

void posterize(Canvas& canvas, int bits) noexcept {
    ByteTable table;
    for (int value = 0; value < 256; ++value)
        table[value] = static_cast<uint8_t>(value & (0xff << (8 - bits)));
    canvas.look_up(table);
}

namespace {

// One number: how many bits stay, 0 to 8.
void apply(const PixelStage& stage, Draws&, Canvas& canvas, uint8_t*) noexcept {
    posterize(canvas, static_cast<int>(stage.parameters[0]));
}

}  // namespace

constinit const PixelKind kPosterize{"posterize", 1, no_scratch, apply};

}  // namespace standpipe
