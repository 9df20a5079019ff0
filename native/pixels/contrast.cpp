// A picture is blended with its mean grey level, as Pillow's ImageEnhance.Contrast does it.
#include "pixels/operations.h"

namespace standpipe {

void change_contrast(Canvas& canvas, float factor) noexcept {
    const double count = static_cast<double>(canvas.height()) * canvas.width();
    const int mean = static_cast<int>(static_cast<double>(canvas.sum_of_greys()) / count + 0.5);
    ByteTable table;
    for (int value = 0; value < 256; ++value) table[value] = blended(mean, value, factor);
    canvas.look_up(table);
}

// Two numbers: the lowest factor and the highest.
constinit const PixelKind kContrast{"contrast", 2, no_scratch, by_factor<change_contrast>};

}  // namespace standpipe
