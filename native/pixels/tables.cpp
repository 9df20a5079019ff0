#include "pixels/tables.h"

namespace standpipe {

void look_up(Pixels pixels, const std::array<ByteTable, 3>& tables) noexcept {
    uint8_t* const end = pixels.rgb + pixels.bytes();
    for (uint8_t* rgb = pixels.rgb; rgb != end; rgb += 3)
        for (size_t c = 0; c < 3; ++c) rgb[c] = tables[c][rgb[c]];
}

void look_up(Pixels pixels, const ByteTable& table) noexcept {
    uint8_t* const end = pixels.rgb + pixels.bytes();
    for (uint8_t* byte = pixels.rgb; byte != end; ++byte) *byte = table[*byte];
}

std::array<Histogram, 3> histograms(Pixels pixels) noexcept {
    std::array<Histogram, 3> counts{};
    const uint8_t* const end = pixels.rgb + pixels.bytes();
    for (const uint8_t* rgb = pixels.rgb; rgb != end; rgb += 3)
        for (size_t c = 0; c < 3; ++c) ++counts[c][rgb[c]];
    return counts;
}

}  // namespace standpipe
