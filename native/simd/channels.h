// The channels of a picture: how many, as a constant of loops over its pixels, and their grey level.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace standpipe {

inline constexpr int kMostChannels = 4;

// A level of each channel; those that a picture doesn't have are unused.
using Colour = std::array<uint8_t, kMostChannels>;

// Pillow's grey level of a pixel: ITU-R 601-2 weights in 16 bits, rounded.
constexpr uint8_t grey(int red, int green, int blue) noexcept {
    return static_cast<uint8_t>((19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16);
}

// Calls `visit` with the number of channels as an integral constant: loops of a constant length are unrolled.
template <typename Visit>
auto with_channels(int channels, Visit&& visit) {
    switch (channels) {
        case 1: return visit(std::integral_constant<size_t, 1>{});
        case 2: return visit(std::integral_constant<size_t, 2>{});
        case 4: return visit(std::integral_constant<size_t, 4>{});
        default: return visit(std::integral_constant<size_t, 3>{});
    }
}

}  // namespace standpipe
