// Shared code of point operations: tables of byte values, histograms, and blending.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "simd/channels.h"

namespace standpipe {

using ByteTable = std::array<uint8_t, 256>;
using ByteTables = std::array<ByteTable, kMostChannels>;  // by channel
using Histogram = std::array<uint32_t, 256>;
using Histograms = std::array<Histogram, kMostChannels>;

// Pillow's Image.blend of two bytes: `factor` 0 is the first, 1 the second, others lie outside, in float and
// truncated.
constexpr uint8_t blended(int from, int to, float factor) noexcept {
    const float value = static_cast<float>(from) + factor * static_cast<float>(to - from);
    return static_cast<uint8_t>(std::clamp(value, 0.0F, 255.0F));
}

}  // namespace standpipe
