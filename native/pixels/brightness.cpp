// A picture is blended with black, as Pillow's ImageEnhance.Brightness does it.
#include "pixels/operations.h"

namespace standpipe {

void brighten(Canvas& canvas, float factor) noexcept {
    ByteTable table;
    for (int value = 0; value < 256; ++value) table[value] = blended(0, value, factor);
    canvas.look_up(table);
}

// Two numbers: the lowest factor and the highest.
constinit const PixelKind kBrightness{"brightness", 2, no_scratch, by_factor<brighten>};

}  // namespace standpipe
