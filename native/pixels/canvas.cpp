#include "pixels/canvas.h"

#include <algorithm>
#include <optional>
#include <span>

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

std::optional<Bits> bits_of(std::span<const ByteTable> tables) noexcept {
    const ByteTable& table = tables[0];
    if (std::ranges::any_of(tables, [&](const ByteTable& each) { return each != table; }))
        return std::nullopt;
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
    uint8_t* const end = pixels_.data + pixels_.bytes();
    if (const auto bits = bits_of(std::span(waiting_).first(static_cast<size_t>(pixels_.channels)))) {
        std::transform(pixels_.data, end, pixels_.data, *bits);
        return pixels_;
    }
    with_channels(pixels_.channels, [&](auto channels) {
        for (uint8_t* pixel = pixels_.data; pixel != end; pixel += channels)
            for (size_t c = 0; c < channels; ++c) pixel[c] = waiting_[c][pixel[c]];
    });
    return pixels_;
}

void Canvas::look_up(const ByteTables& tables) noexcept {
    if (!waits_) waiting_ = tables;
    else
        for (size_t c = 0; c < static_cast<size_t>(pixels_.channels); ++c)
            for (uint8_t& value : waiting_[c]) value = tables[c][value];
    waits_ = true;
}

void Canvas::look_up(const ByteTable& table) noexcept { look_up(ByteTables{table, table, table, table}); }

Histograms Canvas::histograms() const noexcept {
    Histograms counts{};
    const uint8_t* const end = pixels_.data + pixels_.bytes();
    with_channels(pixels_.channels, [&](auto channels) {
        for (const uint8_t* pixel = pixels_.data; pixel != end; pixel += channels)
            for (size_t c = 0; c < channels; ++c) ++counts[c][pixel[c]];
    });
    if (!waits_) return counts;
    Histograms changed{};
    for (size_t c = 0; c < static_cast<size_t>(pixels_.channels); ++c)
        for (size_t value = 0; value < 256; ++value) changed[c][waiting_[c][value]] += counts[c][value];
    return changed;
}

uint64_t Canvas::sum_of_greys() const noexcept {
    uint64_t sum = 0;
    const uint8_t* const end = pixels_.data + pixels_.bytes();
    if (!has_colours()) {
        for (const uint8_t* level = pixels_.data; level != end; level += pixels_.channels)
            sum += waits_ ? waiting_[0][*level] : *level;
        return sum;
    }
    if (!waits_) {
        for (const uint8_t* rgb = pixels_.data; rgb != end; rgb += 3) sum += grey(rgb[0], rgb[1], rgb[2]);
        return sum;
    }
    for (const uint8_t* rgb = pixels_.data; rgb != end; rgb += 3)
        sum += grey(waiting_[0][rgb[0]], waiting_[1][rgb[1]], waiting_[2][rgb[2]]);
    return sum;
}

void Canvas::to_grey() noexcept {
    if (!has_colours()) return;
    pixels();
    for (int y = 0; y < pixels_.height; ++y) {
        const auto row = static_cast<size_t>(y) * static_cast<size_t>(pixels_.width);
        scalar_to_grey(pixels_.data + 3 * row, pixels_.width, pixels_.data + row);
    }
    pixels_.channels = 1;
}

}  // namespace standpipe
