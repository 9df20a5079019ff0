#include "image/arranged.h"

#include <cmath>
#include <cstring>

namespace standpipe {
namespace {

constexpr int kShareBits = 16;
constexpr size_t kAhead = 2;  // rows that are fetched before they are read

}  // namespace

Arranged arranged(const Composition& how, Draws& draws, std::span<const Size> sizes) noexcept {
    Arranged made;
    made.count = sizes.size();
    for (size_t i = 0; i < sizes.size(); ++i) made.parts[i] = {nullptr, sizes[i], 0, 0};
    made.fill = how.fill;
    const Size size = how.size, own = sizes.front();
    if (how.pastes()) {
        made.canvas = own;
        made.count = 1;
    } else if (how.kind == Composition::Kind::mix_up) {
        made.canvas = own;
        if (sizes.size() > 1)
            made.share =
                std::max(1, static_cast<int>(std::lround(drawn_share(how.alpha, draws) * (1 << kShareBits))));
    } else if (sizes.size() == 1) {
        made.canvas = own;
    } else {
        made.canvas = {2 * size.height, 2 * size.width};
        const int x = static_cast<int>(draws.uniform(0.5 * size.width, 1.5 * size.width)),
                  y = static_cast<int>(draws.uniform(0.5 * size.height, 1.5 * size.height));
        for (size_t i = 0; i < 4; ++i) {
            made.parts[i].left = i % 2 ? x : x - sizes[i].width;
            made.parts[i].top = i < 2 ? y - sizes[i].height : y;
        }
    }
    return made;
}

void assemble(const Arranged& from, const Box& box, uint8_t* out) noexcept {
    const auto fill = [&](uint8_t* to, int pixels) {
        for (; pixels > 0; --pixels, to += 3) std::memcpy(to, from.fill.data(), 3);
    };
    const bool is_grey = from.fill[0] == from.fill[1] && from.fill[1] == from.fill[2];
    for (int y = box.y; y < box.y + box.height; ++y) {
        int x = box.x;
        const auto fill_to = [&](int end) {
            if (end <= x) return;
            if (is_grey) std::memset(out, from.fill[0], 3 * static_cast<size_t>(end - x));
            else fill(out, end - x);
            out += 3 * static_cast<size_t>(end - x);
            x = end;
        };
        for (size_t i = 0; i < from.count; ++i) {
            const Placed& part = from.parts[i];
            const auto [begin, end] = part.columns(box.x, box.x + box.width);
            if (y < part.top || y >= part.top + part.size.height || begin >= end) continue;
            fill_to(begin);
            const size_t place = static_cast<size_t>(y - part.top) * static_cast<size_t>(part.size.width) +
                                 static_cast<size_t>(begin - part.left);
            const uint8_t* const pixels = part.pixels + 3 * place;
            const size_t bytes = 3 * static_cast<size_t>(end - begin);
            // A picture is read for the first time in a while, and in rows too short for the processor to
            // see.
            for (size_t i = 0; i < bytes; i += 64)
                __builtin_prefetch(pixels + 3 * kAhead * static_cast<size_t>(part.size.width) + i);
            std::memcpy(out, pixels, bytes);
            out += bytes;
            x = end;
        }
        fill_to(box.x + box.width);
    }
}

void blend(const uint8_t* __restrict first, const uint8_t* __restrict second, int share, size_t bytes,
           uint8_t* __restrict out) noexcept {
    const auto own = static_cast<uint32_t>(share), other = (1U << kShareBits) - own;
    for (size_t i = 0; i < bytes; ++i)
        out[i] = static_cast<uint8_t>((first[i] * own + second[i] * other + (1U << (kShareBits - 1))) >>
                                      kShareBits);
}

}  // namespace standpipe
