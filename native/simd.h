// The inner loops, once per instruction set. Every path gives the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "aligned.h"
#include "filters.h"

namespace penstock {

// Buffers that kernels read may be read up to this many bytes past their end, and those that they write may
// be written so.
inline constexpr size_t kSlack = 64;

// A horizontal pass over rows of RGB bytes, its weights laid out for the vector units.
//
// 16-bit multipliers can't hold a 22-bit weight, so each is split into w = hi * 4096 + lo; two taps are
// multiplied and added by one instruction for hi and one for lo. Outputs go in groups of eight, in an order
// inside the group that suits the instruction set. `split` holds, for each group and each pair of taps, eight
// 8-lane vectors of hi and then eight of lo, a vector being (w0 w1) four times: once for each of R, G, B, and
// one lane unused.
inline constexpr int kGroup = 8;

struct HorizontalPlan {
    int width = 0;
    int taps = 0;
    std::vector<int32_t> start;        // byte offset of each output's first tap, left to right
    std::vector<int32_t> weight;       // (width, taps)
    std::vector<int32_t> group_start;  // likewise `start` in the groups' order, padded to whole groups
    AlignedVector<int16_t> split;

    int pairs() const noexcept { return (taps + 1) / 2; }
    int groups() const noexcept { return (width + kGroup - 1) / kGroup; }

    // `origin` and `columns`: the source column at which rows given to the pass begin, and how many they
    // have. `mirror`: outputs from right to left. `order`: place i of a group is output order[i]; null: no
    // groups.
    void prepare(const AxisWeights& axis, int origin, int columns, bool mirror, const int8_t* order);

  private:
    void split_weights(const int8_t* order);
};

inline constexpr int kSplitBits = 12;
inline constexpr int32_t kSplitMask = (1 << kSplitBits) - 1;

struct Kernels {
    const char* name;
    const int8_t* order;  // of outputs in a HorizontalPlan's groups; null: it reads none

    // One row of RGB bytes to plan.width pixels.
    void (*horizontal)(const uint8_t* row, const HorizontalPlan& plan, uint8_t* out) noexcept;
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

extern const Kernels kScalarKernels;

// Null where this build or this processor doesn't have the instruction set: "scalar", "avx2", "avx512",
// "neon".
const Kernels* kernels_named(const char* name) noexcept;

// The widest for this processor, but 512 bits only where they don't lower the clock (from Ice Lake on, told
// by VBMI): on Skylake they cost 2 to 4% of the standard task.
const Kernels& best_kernels() noexcept;

inline uint8_t clip_to_byte(int32_t sum) noexcept {
    const int32_t value = sum >> kWeightBits;
    return static_cast<uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
}

}  // namespace penstock
