// Shared code of point operations: tables of byte values, histograms, grey levels, and blending.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace standpipe {

using ByteTable = std::array<uint8_t, 256>;
using ByteTables = std::array<ByteTable, 3>;  // by channel
using Histogram = std::array<uint32_t, 256>;

// Pillow's grey level of a pixel: ITU-R 601-2 weights in 16 bits, rounded.
constexpr uint8_t grey(int red, int green, int blue) noexcept {
    return static_cast<uint8_t>((19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16);
}

// Pillow's Image.blend of two bytes: `factor` 0 is the first, 1 the second, others lie outside, in float and
// truncated.
constexpr uint8_t blended(int from, int to, float factor) noexcept {
    const float value = static_cast<float>(from) + factor * static_cast<float>(to - from);
    return static_cast<uint8_t>(std::clamp(value, 0.0F, 255.0F));
}

}  // namespace standpipe
