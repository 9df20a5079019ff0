// Counts durations in buckets, which standpipe/stats/latency.py describes.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace standpipe {

class Latency {
  public:
    static constexpr uint64_t kParts = 8, kLeast_ns = 1 << 10;
    static constexpr size_t kBuckets = 26 * kParts + 1;

    static constexpr size_t bucket(uint64_t ns) noexcept {
        constexpr uint64_t kLongest_ns = kLeast_ns << 26;
        const uint64_t steps = std::clamp(ns, kLeast_ns, kLongest_ns) * kParts / kLeast_ns;  // from 8 on
        const int doubling = std::bit_width(steps) - 4;
        return static_cast<size_t>(static_cast<uint64_t>(doubling) * kParts + (steps >> doubling) - kParts);
    }
    void add(std::chrono::nanoseconds took) noexcept {
        ++counts_[bucket(static_cast<uint64_t>(std::max<int64_t>(took.count(), 0)))];
    }
    const std::array<uint64_t, kBuckets>& counts() const noexcept { return counts_; }

  private:
    std::array<uint64_t, kBuckets> counts_{};
};

}  // namespace standpipe
