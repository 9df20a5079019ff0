// The inner loops' interface, for files that are compiled once per instruction set.
//
// Such a file includes this header and intrinsics, and nothing else that has functions: the linker keeps one
// copy of an inline function, and a copy with AVX in it would end the process on a CPU without AVX.
// Load-time initialisers would too, so the tables are constinit. tests/native/test_instruction_sets.py reads
// the objects.
#pragma once

#include <cstddef>
#include <cstdint>

namespace standpipe {

// Kernels may read this many bytes past the end of a buffer, and may write as many past the end of their
// output.
inline constexpr size_t kSlack = 64;

// Fractional bits of a resampling weight, a fixed-point number; each pass rounds to 8 bits.
// Part of the pixel contract: Pillow 13's 8-bit resize does the same.
inline constexpr int kWeightBits = 22;

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

// A view of a HorizontalPlan, without functions.
struct HorizontalPass {
    int width, taps;
    int groups, pairs;      // of kGroup outputs; of two taps
    const int32_t* start;   // (groups * kGroup,)
    const int32_t* weight;  // (width, taps)
    const int32_t* split;   // (groups, pairs, kGroup, 2), if Kernels::splits
};

struct Kernels {
    const char* name;
    bool splits;  // whether `horizontal` reads HorizontalPass::split

    // Two rows of RGB bytes to pass.width pixels each; they may be the same one.
    void (*horizontal)(const uint8_t* const* rows, const HorizontalPass& pass, uint8_t* const* out) noexcept;
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

// The scalar look-ups, by name: other tables hold them, and an entry of another table isn't a constant.
void scalar_look_up_f32(const uint8_t* bytes, int width, const float* table, float* out) noexcept;
void scalar_look_up_f16(const uint8_t* bytes, int width, const uint16_t* table, uint16_t* out) noexcept;

extern const Kernels kScalarKernels, kAvx2Kernels, kAvx512Kernels, kNeonKernels;

}  // namespace standpipe
