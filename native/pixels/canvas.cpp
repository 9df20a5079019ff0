#include "pixels/canvas.h"

#include <algorithm>
#include <optional>

namespace standpipe {
namespace {

// The table as arithmetic, which compilers turn into vectors: a ninth of a table's time. It is that of an
// inverted, posterized or solarized picture, or of the latter two in turn.
struct Bits {
    uint8_t flipped, last, kept;  // bits that change in all values, in those above `last`, and bits that stay

    uint8_t operator()(uint8_t value) const noexcept {
        return static_cast<uint8_t>((value ^ flipped ^ (value > last ? 255 : 0)) & kept);
    }
};

std::optional<Bits> bits_of(const ByteTables& tables) noexcept {
    const ByteTable& table = tables[0];
    if (tables[1] != table || tables[2] != table) return std::nullopt;
    uint8_t kept = 0;
    for (const uint8_t value : table) kept |= value;
    int same = 0;
    while (same < 256 && table[same] == (same & kept)) ++same;
    const Bits bits = same == 0 ? Bits{255, 255, kept} : Bits{0, static_cast<uint8_t>(same - 1), kept};
    for (int value = same; value < 256; ++value)
        if (table[value] != bits(static_cast<uint8_t>(value))) return std::nullopt;
    return bits;
}

}  // namespace

Pixels Canvas::pixels() noexcept {
    if (!waits_) return pixels_;
    waits_ = false;
    uint8_t* const end = pixels_.rgb + pixels_.bytes();
    if (const auto bits = bits_of(waiting_)) {
        std::transform(pixels_.rgb, end, pixels_.rgb, *bits);
        return pixels_;
    }
    for (uint8_t* rgb = pixels_.rgb; rgb != end; rgb += 3)
        for (size_t c = 0; c < 3; ++c) rgb[c] = waiting_[c][rgb[c]];
    return pixels_;
}

void Canvas::look_up(const ByteTables& tables) noexcept {
    if (!waits_) waiting_ = tables;
    else
        for (size_t c = 0; c < 3; ++c)
            for (uint8_t& value : waiting_[c]) value = tables[c][value];
    waits_ = true;
}

void Canvas::look_up(const ByteTable& table) noexcept { look_up(ByteTables{table, table, table}); }

std::array<Histogram, 3> Canvas::histograms() const noexcept {
    std::array<Histogram, 3> counts{};
    const uint8_t* const end = pixels_.rgb + pixels_.bytes();
    for (const uint8_t* rgb = pixels_.rgb; rgb != end; rgb += 3)
        for (size_t c = 0; c < 3; ++c) ++counts[c][rgb[c]];
    if (!waits_) return counts;
    std::array<Histogram, 3> changed{};
    for (size_t c = 0; c < 3; ++c)
        for (size_t value = 0; value < 256; ++value) changed[c][waiting_[c][value]] += counts[c][value];
    return changed;
}

uint64_t Canvas::sum_of_greys() const noexcept {
    uint64_t sum = 0;
    const uint8_t* const end = pixels_.rgb + pixels_.bytes();
    if (!waits_) {
        for (const uint8_t* rgb = pixels_.rgb; rgb != end; rgb += 3) sum += grey(rgb[0], rgb[1], rgb[2]);
        return sum;
    }
    for (const uint8_t* rgb = pixels_.rgb; rgb != end; rgb += 3)
        sum += grey(waiting_[0][rgb[0]], waiting_[1][rgb[1]], waiting_[2][rgb[2]]);
    return sum;
}

}  // namespace standpipe
