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

// The split weights of two taps, those of the first one in the lower half of each.
struct SplitWeights {
    int32_t hi, lo;
};
SplitWeights split_weights(int32_t first, int32_t second) noexcept;

inline constexpr int kGroup = 4;  // outputs that a vector kernel makes at once

// A view of a HorizontalPlan, without functions.
struct HorizontalPass {
    int width, taps, channels;
    int groups, pairs;      // of kGroup outputs; of two taps
    const int32_t* start;   // (groups * kGroup,)
    const int32_t* weight;  // (width, taps)
    // SplitWeights, if Kernels::splits: (groups, pairs, kGroup, 2). Of one channel, pairs are a multiple of
    // kGroup: (groups, kGroup, pairs / kGroup, 2, kGroup).
    const int32_t* split;
};

// A picture whose pixels a warp interpolates: (height, width, channels) bytes.
struct WarpSource {
    const uint8_t* pixels;
    int height, width, channels;
    const uint8_t* fill;  // a pixel: the colour of all places outside
};

inline constexpr int kPlaceBits = 5;  // after the point, of coordinates in pixels

// A row of places in perspective: place i is (x + i * step_x, y + i * step_y) / (depth + i * step_depth).
struct PlaceRow {
    double x, y, depth, step_x, step_y, step_depth;
    double one, most;   // the factor of the result, and the most that it is either way
    int32_t left, top;  // what is taken off in the end
};

// The gains of RandomHSV.
struct HsvGains {
    int turn;               // 0 to 179: of 180
    int saturation, value;  // in 2^-14, at most 2^15
};

// OpenCV's 8-bit HSV. Its tables, of 255 / value and 30 / range, have kHsvBits after the point. A channel is
// value · (1 − saturation · away), where `away` has 30 parts: kHsvMost is 8 · 255 · 30, and kHsvHalf makes it
// 2^15.
inline constexpr int kHsvBits = 12, kHsvMost = 8 * 255 * 30, kHsvHalf = 35090;

// Fractional bits of a weight of OpenCV's bilinear resize, and of the rows between its passes. Both weights
// of an output are not always 1 together.
inline constexpr int kLinearBits = 11, kBetweenBits = 7;

struct Kernels {
    const char* name;
    bool splits;  // whether `horizontal` reads HorizontalPass::split

    // Two rows of pass.channels bytes a pixel to pass.width pixels each; they may be the same one.
    void (*horizontal)(const uint8_t* const* rows, const HorizontalPass& pass, uint8_t* const* out) noexcept;
    // out[i] = round(sum over t of rows[t][i] * weight[t]) for i < bytes.
    void (*vertical)(const uint8_t* const* rows, const int32_t* weight, int taps, size_t bytes,
                     uint8_t* out) noexcept;
    // Pixels to `channels` planes of bytes; up to kSlack bytes behind each plane's row are overwritten.
    void (*separate)(const uint8_t* pixels, int width, int channels, uint8_t* const* planes) noexcept;
    // RGB bytes to Pillow's grey levels, as grey() has them; up to kSlack bytes behind `out` are overwritten.
    // It may be `rgb`.
    void (*to_grey)(const uint8_t* rgb, int width, uint8_t* out) noexcept;
    // out[x] = table[bytes[x]] for one channel's row. Not by gathers: processors whose microcode guards them
    // take twice as long. Nor by float arithmetic, which slowed down the decoding after it by a fifth.
    void (*look_up_f32)(const uint8_t* bytes, int width, const float* table, float* out) noexcept;
    void (*look_up_f16)(const uint8_t* bytes, int width, const uint16_t* table, uint16_t* out) noexcept;
    // The passes of a blur. Each sums rows[t][i] * weight[t] over t, modulo 2^32, for i < count: `across`
    // writes
    // ((sum + 2^7) >> 8) - 2^15, and `down`, whose rows those are, (sum + 2^31 + 2^23) >> 24. `taps` is even,
    // and the weights' sum is 2^16. `out` is none of the rows. They write and read nothing behind `count`.
    void (*blur_across)(const int16_t* const* rows, const int16_t* weight, int taps, size_t count,
                        int16_t* out) noexcept;
    void (*blur_down)(const int16_t* const* rows, const int16_t* weight, int taps, size_t count,
                      uint8_t* out) noexcept;
    // The pixels at `count` places, x[i] and y[i] in 1/32 pixels from the first pixel's centre, as OpenCV
    // interpolates them: four neighbours with weights of 10 bits, and the sum rounded. Places are at most
    // 2^26 either way. It writes nothing behind the pixels.
    void (*interpolate)(const WarpSource& from, const int32_t* x, const int32_t* y, int count,
                        uint8_t* out) noexcept;
    // The places from `first` on, rounded to the nearest integer, a tie's even one. What is no number becomes
    // -`most`. Up to three places behind them are overwritten.
    void (*divide_places)(const PlaceRow& row, int first, int count, int32_t* x, int32_t* y) noexcept;
    // Turns the hues of `count` RGB pixels, in place, and multiplies saturation and value: OpenCV's
    // conversion to 8-bit HSV, products truncated and at most 255, and a conversion back by integers, at most
    // one level away from OpenCV's.
    void (*gain_hsv)(uint8_t* rgb, size_t count, const HsvGains& gains) noexcept;
    // The horizontal pass of OpenCV's bilinear resize, of two taps: pass.channels numbers a pixel, with
    // kBetweenBits and truncated. Up to kSlack bytes behind `out` are overwritten.
    void (*linear_across)(const uint8_t* row, const HorizontalPass& pass, int16_t* out) noexcept;
    // out[i] = round((above[i] * (32 - fraction) + below[i] * fraction) / 2^10), for numbers of 13 bits.
    void (*mix_rows)(const int16_t* above, const int16_t* below, int fraction, size_t count,
                     uint8_t* out) noexcept;
    // RGB pixels from right to left. It writes nothing behind them.
    void (*mirror)(const uint8_t* rgb, int width, uint8_t* out) noexcept;
};

// The scalar ones, by name: other tables hold them, and an entry of another table isn't a constant.
void scalar_separate(const uint8_t* pixels, int width, int channels, uint8_t* const* planes) noexcept;
void scalar_to_grey(const uint8_t* rgb, int width, uint8_t* out) noexcept;
void scalar_look_up_f32(const uint8_t* bytes, int width, const float* table, float* out) noexcept;
void scalar_look_up_f16(const uint8_t* bytes, int width, const uint16_t* table, uint16_t* out) noexcept;
void scalar_blur_across(const int16_t* const* rows, const int16_t* weight, int taps, size_t count,
                        int16_t* out) noexcept;
void scalar_blur_down(const int16_t* const* rows, const int16_t* weight, int taps, size_t count,
                      uint8_t* out) noexcept;
void scalar_interpolate(const WarpSource& from, const int32_t* x, const int32_t* y, int count,
                        uint8_t* out) noexcept;
void scalar_divide_places(const PlaceRow& row, int first, int count, int32_t* x, int32_t* y) noexcept;
void scalar_gain_hsv(uint8_t* rgb, size_t count, const HsvGains& gains) noexcept;
void scalar_mirror(const uint8_t* rgb, int width, uint8_t* out) noexcept;
void scalar_mix_rows(const int16_t* above, const int16_t* below, int fraction, size_t count,
                     uint8_t* out) noexcept;
void scalar_linear_across(const uint8_t* row, const HorizontalPass& pass, int16_t* out) noexcept;

// The vertical pass, of rows from `linear_across`. Compilers vectorise it.
void linear_down(const int16_t* above, const int16_t* below, int32_t weight_above, int32_t weight_below,
                 size_t count, uint8_t* out) noexcept;

extern const Kernels kScalarKernels, kAvx2Kernels, kAvx512Kernels, kNeonKernels;

}  // namespace standpipe
