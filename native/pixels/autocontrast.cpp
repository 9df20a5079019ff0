// Stretches each channel to the whole range, as Pillow's ImageOps.autocontrast does.
#include "pixels/operations.h"

namespace standpipe {
namespace {

ByteTable stretched(const Histogram& counts) noexcept {
    ByteTable table;
    int low = 0, high = 255;
    while (low < 255 && counts[low] == 0) ++low;
    while (high > 0 && counts[high] == 0) --high;
    const bool flat = high <= low;
    const double scale = flat ? 1 : 255.0 / (high - low), offset = flat ? 0 : -low * scale;
    for (int value = 0; value < 256; ++value)
        table[value] = static_cast<uint8_t>(std::clamp(static_cast<int>(value * scale + offset), 0, 255));
    return table;
}

}  // namespace

constinit const PixelKind kAutocontrast{"autocontrast", 0, no_scratch, by_histogram<stretched>};

}  // namespace standpipe
