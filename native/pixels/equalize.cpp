// Makes each channel's histogram flat, as Pillow's ImageOps.equalize does.
#include "pixels/operations.h"

namespace standpipe {
namespace {

ByteTable flattened(const Histogram& counts) noexcept {
    uint64_t sum = 0, last = 0;
    for (const uint32_t count : counts) {
        sum += count;
        if (count != 0) last = count;
    }
    const uint64_t step = (sum - last) / 255;
    uint64_t before = step / 2;
    ByteTable table;
    for (int value = 0; value < 256; ++value) {
        table[value] = static_cast<uint8_t>(step == 0 ? value : std::min<uint64_t>(before / step, 255));
        before += counts[value];
    }
    return table;
}

}  // namespace

constinit const PixelKind kEqualize{"equalize", 0, no_scratch, by_histogram<flattened>};

}  // namespace standpipe
