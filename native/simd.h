// The inner loops, once per instruction set. Every path gives the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "aligned.h"
#include "filters.h"

namespace standpipe {

// Buffers that kernels read may be read up to this many bytes past their end, and those that they write may
// be written so.
inline constexpr size_t kSlack = 64;

// 16-bit multipliers can't hold a 22-bit weight, so each is split into w = hi * 4096 + lo, with lo in
// [-2048, 2048): sums with lo alone fit 32 bits where sums with w do. Two taps are multiplied and added by
// one instruction for hi and one for lo.
inline constexpr int kSplitBits = 12;

// Of two taps, the first one's in the lower half of each.
struct SplitWeights {
    int32_t hi, lo;
};
SplitWeights split_weights(int32_t first, int32_t second) noexcept;

inline constexpr int kGroup = 4;  // outputs that a vector kernel makes at once

// A horizontal pass over rows of RGB bytes.
struct HorizontalPlan {
    int width = 0;
    int taps = 0;
    std::vector<int32_t> start;   // byte offset of each output's first tap, left to right, in whole groups
    std::vector<int32_t> weight;  // (width, taps)
    // (groups, pairs of taps, kGroup, 2): SplitWeights
    AlignedVector<int32_t> split;

    int pairs() const noexcept { return (taps + 1) / 2; }
    int groups() const noexcept { return (width + kGroup - 1) / kGroup; }

    // `origin` and `columns`: the source column at which rows given to the pass begin, and how many they
    // have. `mirror`: outputs from right to left. `splits`: whether `split` is wanted.
    void prepare(const AxisWeights& axis, int origin, int columns, bool mirror, bool splits);

  private:
    void fill_split();
};

struct Kernels {
    const char* name;
    bool splits;  // whether `horizontal` reads HorizontalPlan::split

    // Two rows of RGB bytes to plan.width pixels each; they may be the same one.
    void (*horizontal)(const uint8_t* const* rows, const HorizontalPlan& plan, uint8_t* const* out) noexcept;
    // out[i] = round(sum over t of rows[t][i] * weight[t]) for i < bytes.
    void (*vertical)(const uint8_t* const* rows, const int32_t* weight, int taps, size_t bytes,
                     uint8_t* out) noexcept;
    // RGB bytes to three planes of bytes; up to kSlack bytes behind each plane's row are overwritten.
    void (*separate)(const uint8_t* rgb, int width, uint8_t* const* planes) noexcept;
    // out[x] = table[bytes[x]] for one channel's row. Not by gathers: processors whose microcode guards them
    // take twice as long. Nor by float arithmetic, which slowed down the decoding after it by a fifth.
    void (*look_up_f32)(const uint8_t* bytes, int width, const float* table, float* out) noexcept;
    void (*look_up_f16)(const uint8_t* bytes, int width, const uint16_t* table, uint16_t* out) noexcept;
};

// A horizontal kernel from one that makes a single row.
template <void (*Row)(const uint8_t*, const HorizontalPlan&, uint8_t*) noexcept>
void one_by_one(const uint8_t* const* rows, const HorizontalPlan& plan, uint8_t* const* out) noexcept {
    Row(rows[0], plan, out[0]);
    Row(rows[1], plan, out[1]);
}

extern const Kernels kScalarKernels;

// Null where this build or this processor doesn't have the instruction set: "scalar", "avx2", "avx512",
// "neon".
const Kernels* kernels_named(const char* name) noexcept;

// The quickest for this processor.
const Kernels& best_kernels() noexcept;

inline uint8_t clip_to_byte(int32_t sum) noexcept {
    const int32_t value = sum >> kWeightBits;
    return static_cast<uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
}

}  // namespace standpipe
