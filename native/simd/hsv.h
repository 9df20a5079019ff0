// Gains of hue, saturation and value, with OpenCV's 8-bit HSV between. Tables of kernels include this, each
// with vectors as wide as its own: see kernels.h on what such files may include.
#pragma once

#include "simd/kernels.h"

namespace standpipe {
namespace {

// Vectors of four numbers, and of eight. They aren't a template: GCC 12 forgets a size that depends on one.
struct Fours {
    using Floats = float __attribute__((vector_size(16)));
    using Integers = int32_t __attribute__((vector_size(16)));
    using Naturals = uint32_t __attribute__((vector_size(16)));
};
struct Eights {
    using Floats = float __attribute__((vector_size(32)));
    using Integers = int32_t __attribute__((vector_size(32)));
    using Naturals = uint32_t __attribute__((vector_size(32)));
};

template <typename Vectors>
struct HsvLanes {
    using Floats = typename Vectors::Floats;
    using Integers = typename Vectors::Integers;
    using Naturals = typename Vectors::Naturals;
    static constexpr size_t kPixels = sizeof(Floats) / sizeof(float);

    static Floats truncated(Floats x) {
        return __builtin_convertvector(__builtin_convertvector(x, Integers), Floats);
    }
    static Floats rounded(Floats x) { return (x + 0x1.8p23F) - 0x1.8p23F; }
    static Floats size_of(Floats x) {
        return reinterpret_cast<Floats>(reinterpret_cast<Integers>(x) & INT32_MAX);
    }

    // Floats are compared as integers, which takes one instruction. Then at least one of both must be
    // positive or zero.
    static Floats higher(Floats a, Floats b) {
        const auto x = reinterpret_cast<Integers>(a), y = reinterpret_cast<Integers>(b);
        return reinterpret_cast<Floats>(x > y ? x : y);
    }
    static Floats lower(Floats a, Floats b) {
        const auto x = reinterpret_cast<Integers>(a), y = reinterpret_cast<Integers>(b);
        return reinterpret_cast<Floats>(x < y ? x : y);
    }

    // Bytes as numbers, in place. OpenCV's steps: hue is in degrees / 2, and all three are truncated.
    static void change(Floats& r, Floats& g, Floats& b, const HsvGains& gains) {
        const Floats zero{}, one = zero + 1, most_byte = zero + 255;
        Floats v = higher(r, higher(g, b));
        const Floats range = v - lower(r, lower(g, b));
        // OpenCV has tables of both quotients, with 12 bits after the point. All products are below 2^24.
        const Floats per_value = rounded((255 << 12) / higher(v, one)),
                     per_range = rounded((30 << 12) / higher(range, one));
        Floats s = truncated((range * per_value + 2048) * 0x1p-12F);
        const Floats twice = range + range;
        const Floats sixths = v == r ? g - b : v == g ? (b - r) + twice : (r - g) + (twice + twice);
        Floats h = sixths * per_range + 2048;
        h += reinterpret_cast<Floats>((reinterpret_cast<Integers>(h) >> 31) &
                                      reinterpret_cast<Integers>(zero + (180 << 12)));
        h = truncated(h * 0x1p-12F) + gains.turn;
        // Negative numbers are the higher ones here.
        const auto full = reinterpret_cast<Naturals>(h), rest = reinterpret_cast<Naturals>(h - 180);
        h = reinterpret_cast<Floats>(full < rest ? full : rest) * (6 / 180.0F);
        s = truncated(lower(s * gains.saturation, most_byte)) * (1 / 255.0F);
        v = truncated(lower(v * gains.value, most_byte)) * (1 / 255.0F);
        // `away`: 0 where the channel has the value itself, 1 where it has the least of the three.
        const auto channel = [&](Floats away) { return v * (1 - s * higher(zero, lower(one, away))) * 255; };
        r = channel(2 - size_of(h - 3));
        g = channel(size_of(h - 2) - 1);
        b = channel(size_of(h - 4) - 1);
    }
};

// Changes pixels in groups: `change_group` takes `Pixels` of them, in place.
template <size_t Pixels, typename Group>
void in_groups(uint8_t* rgb, size_t count, Group change_group) {
    for (; count >= Pixels; count -= Pixels, rgb += 3 * Pixels) change_group(rgb);
    uint8_t last[3 * Pixels] = {};
    for (size_t i = 0; i < 3 * count; ++i) last[i] = rgb[i];
    change_group(last);
    for (size_t i = 0; i < 3 * count; ++i) rgb[i] = last[i];
}

}  // namespace
}  // namespace standpipe
