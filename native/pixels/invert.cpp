// Subtracts each value from 255, as Pillow's ImageOps.invert does.
#include "pixels/pixels.h"

namespace standpipe {
namespace {

void invert(const PixelStage&, Draws&, Canvas& canvas, uint8_t*) noexcept {
    ByteTable table;
    for (int value = 0; value < 256; ++value) table[value] = static_cast<uint8_t>(255 - value);
    canvas.look_up(table);
}

}  // namespace

constinit const PixelKind kInvert{"invert", 0, no_scratch, invert};

}  // namespace standpipe
