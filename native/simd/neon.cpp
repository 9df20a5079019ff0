#include <arm_neon.h>

#include <cstring>

#include "simd/kernels.h"

namespace standpipe {
namespace {

// Sums are kept whole in 32 bits: a multiply-add of 32-bit lanes costs as much here as the two of 16-bit
// lanes that split weights take.
inline int32x4_t rounding() { return vdupq_n_s32(1 << (kWeightBits - 1)); }

inline uint16x4_t words_of(int32x4_t sum) { return vqmovun_s32(vshrq_n_s32(sum, kWeightBits)); }

// 16 bytes hold five RGB pixels. Pixel i as 32-bit lanes R G B 0.
inline int32x4_t pixel_of(uint8x16_t bytes, uint8x16_t lanes) {
    return vreinterpretq_s32_u8(vqtbl1q_u8(bytes, lanes));
}

struct PixelLanes {
    uint8x16_t pixel[4];

    PixelLanes() {
        for (int i = 0; i < 4; ++i) {
            // Indices of 16 and above give zero.
            const auto at = [i](int c) { return static_cast<uint32_t>(0xffffff00 | (3 * i + c)); };
            const uint32_t lanes[4] = {at(0), at(1), at(2), 0xffffffff};
            pixel[i] = vreinterpretq_u8_u32(vld1q_u32(lanes));
        }
    }
};

void horizontal_row(const uint8_t* row, const HorizontalPass& pass, uint8_t* out) noexcept {
    const PixelLanes lanes;
    const int32_t* weight = pass.weight;
    const int taps = pass.taps;
    for (int x = 0; x < pass.width; ++x, weight += taps, out += 3) {
        const uint8_t* from = row + pass.start[x];
        int32x4_t even = rounding(), odd = vdupq_n_s32(0);
        int t = 0;
        for (; t + 4 <= taps; t += 4, from += 12) {
            const uint8x16_t bytes = vld1q_u8(from);
            const int32x4_t w = vld1q_s32(weight + t);
            even = vmlaq_laneq_s32(even, pixel_of(bytes, lanes.pixel[0]), w, 0);
            odd = vmlaq_laneq_s32(odd, pixel_of(bytes, lanes.pixel[1]), w, 1);
            even = vmlaq_laneq_s32(even, pixel_of(bytes, lanes.pixel[2]), w, 2);
            odd = vmlaq_laneq_s32(odd, pixel_of(bytes, lanes.pixel[3]), w, 3);
        }
        if (t < taps) {
            const uint8x16_t bytes = vld1q_u8(from);
            even = vmlaq_n_s32(even, pixel_of(bytes, lanes.pixel[0]), weight[t]);
            if (t + 1 < taps) odd = vmlaq_n_s32(odd, pixel_of(bytes, lanes.pixel[1]), weight[t + 1]);
            if (t + 2 < taps) even = vmlaq_n_s32(even, pixel_of(bytes, lanes.pixel[2]), weight[t + 2]);
        }
        const uint16x4_t words = words_of(vaddq_s32(even, odd));
        const uint8x8_t bytes = vqmovn_u16(vcombine_u16(words, words));
        const uint32_t rgb = vget_lane_u32(vreinterpret_u32_u8(bytes), 0);
        std::memcpy(out, &rgb, sizeof rgb);
    }
}

void horizontal(const uint8_t* const* rows, const HorizontalPass& pass, uint8_t* const* out) noexcept {
    for (int r = 0; r < 2; ++r) horizontal_row(rows[r], pass, out[r]);
}

// 16 bytes of sums.
struct Block {
    int32x4_t sum[4] = {rounding(), rounding(), rounding(), rounding()};

    void add(const uint8_t* row, int32_t weight) {
        const uint8x16_t bytes = vld1q_u8(row);
        const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_high_u8(bytes);
        const uint32x4_t part[4] = {vmovl_u16(vget_low_u16(low)), vmovl_high_u16(low),
                                    vmovl_u16(vget_low_u16(high)), vmovl_high_u16(high)};
        for (int k = 0; k < 4; ++k) sum[k] = vmlaq_n_s32(sum[k], vreinterpretq_s32_u32(part[k]), weight);
    }

    uint8x16_t bytes() const {
        const uint16x8_t low = vcombine_u16(words_of(sum[0]), words_of(sum[1])),
                         high = vcombine_u16(words_of(sum[2]), words_of(sum[3]));
        return vcombine_u8(vqmovn_u16(low), vqmovn_u16(high));
    }
};

void vertical(const uint8_t* const* rows, const int32_t* weight, int taps, size_t bytes,
              uint8_t* out) noexcept {
    for (size_t i = 0; i < bytes; i += 16) {
        Block block;
        for (int t = 0; t < taps; ++t) block.add(rows[t] + i, weight[t]);
        vst1q_u8(out + i, block.bytes());
    }
}

void separate(const uint8_t* rgb, int width, uint8_t* const* planes) noexcept {
    for (int x = 0; x < width; x += 16, rgb += 48) {
        const uint8x16x3_t pixels = vld3q_u8(rgb);
        for (int c = 0; c < 3; ++c) vst1q_u8(planes[c] + x, pixels.val[c]);
    }
}

}  // namespace

constinit const Kernels kNeonKernels{"neon",
                                     false,
                                     horizontal,
                                     vertical,
                                     separate,
                                     scalar_look_up_f32,
                                     scalar_look_up_f16,
                                     scalar_blur_across,
                                     scalar_blur_down,
                                     scalar_sharpen};

}  // namespace standpipe
