// What point operations share: tables of byte values, histograms, grey levels, and blending.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "pixels/pixels.h"

namespace standpipe {

using ByteTable = std::array<uint8_t, 256>;
using Histogram = std::array<uint32_t, 256>;

// Replaces each byte by its entry in the table of its channel.
void look_up(Pixels pixels, const std::array<ByteTable, 3>& tables) noexcept;
void look_up(Pixels pixels, const ByteTable& table) noexcept;

// How often each value is there, by channel.
std::array<Histogram, 3> histograms(Pixels pixels) noexcept;

// Pillow's grey level of a pixel: ITU-R 601-2 weights in 16 bits, rounded.
constexpr uint8_t grey(const uint8_t* rgb) noexcept {
    return static_cast<uint8_t>((19595 * rgb[0] + 38470 * rgb[1] + 7471 * rgb[2] + 0x8000) >> 16);
}

// Pillow's Image.blend of two bytes: `factor` 0 is the first, 1 the second, others lie outside, in float and
// truncated.
constexpr uint8_t blended(int from, int to, float factor) noexcept {
    const float value = static_cast<float>(from) + factor * static_cast<float>(to - from);
    return static_cast<uint8_t>(std::clamp(value, 0.0F, 255.0F));
}

}  // namespace standpipe
