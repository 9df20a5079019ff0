// The choice of the inner loops, of which there is a table per instruction set, and what they read. Every
// table gives the same bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "simd/aligned.h"
#include "simd/filters.h"
#include "simd/kernels.h"

namespace standpipe {

// A horizontal pass over rows of bytes, `channels` a pixel.
struct HorizontalPlan {
    int width = 0;
    int taps = 0;
    int channels = 3;
    std::vector<int32_t> start;    // byte offset of each output's first tap, left to right, in whole groups
    std::vector<int32_t> weight;   // (width, taps)
    AlignedVector<int32_t> split;  // HorizontalPass documents it

    HorizontalPass pass() const noexcept {
        return {width, taps, channels, groups(), pairs(), start.data(), weight.data(), split.data()};
    }

    int pairs() const noexcept {
        const int least = (taps + 1) / 2;
        return channels == 1 ? (least + kGroup - 1) / kGroup * kGroup : least;
    }
    int groups() const noexcept { return (width + kGroup - 1) / kGroup; }

    // `origin` and `columns`: the source column at which rows given to the pass begin, and how many they
    // have. `mirror`: outputs from right to left. `splits`: whether `split` is wanted.
    void prepare(const AxisWeights& axis, int origin, int columns, int channels, bool mirror, bool splits);

  private:
    void fill_split();
};

// Null where this build or this processor doesn't have the instruction set: "scalar", "avx2", "avx512",
// "neon".
const Kernels* kernels_named(const char* name) noexcept;

// The quickest for this processor.
const Kernels& best_kernels() noexcept;

}  // namespace standpipe
