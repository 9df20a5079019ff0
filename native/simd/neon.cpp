#include <arm_neon.h>

#include <cstring>

#include "simd/kernels.h"

namespace standpipe {
namespace {

// Sums are kept whole in 32 bits: a multiply-add of 32-bit lanes costs as much here as the two of 16-bit
// lanes that split weights take.
inline int32x4_t rounding() { return vdupq_n_s32(1 << (kWeightBits - 1)); }

inline uint16x4_t words_of(int32x4_t sum) { return vqmovun_s32(vshrq_n_s32(sum, kWeightBits)); }

// Pixel i of 16 bytes, at least four pixels, as 32-bit lanes, such as R G B 0.
inline int32x4_t pixel_of(uint8x16_t bytes, uint8x16_t lanes) {
    return vreinterpretq_s32_u8(vqtbl1q_u8(bytes, lanes));
}

template <int C>
struct PixelLanes {
    uint8x16_t pixel[4];

    PixelLanes() {
        for (int i = 0; i < 4; ++i) {
            uint32_t lanes[4];
            // Indices of 16 and above give zero.
            for (int c = 0; c < 4; ++c)
                lanes[c] = c < C ? static_cast<uint32_t>(0xffffff00 | (C * i + c)) : 0xffffffff;
            pixel[i] = vreinterpretq_u8_u32(vld1q_u32(lanes));
        }
    }
};

template <int C>
void horizontal_row(const uint8_t* row, const HorizontalPass& pass, uint8_t* out) noexcept {
    const PixelLanes<C> lanes;
    const int32_t* weight = pass.weight;
    const int taps = pass.taps;
    for (int x = 0; x < pass.width; ++x, weight += taps, out += C) {
        const uint8_t* from = row + pass.start[x];
        int32x4_t even = rounding(), odd = vdupq_n_s32(0);
        int t = 0;
        for (; t + 4 <= taps; t += 4, from += 4 * C) {
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
        const uint32_t pixel = vget_lane_u32(vreinterpret_u32_u8(bytes), 0);
        std::memcpy(out, &pixel, sizeof pixel);
    }
}

// One channel: four taps at a time.
void horizontal_row_of_one(const uint8_t* row, const HorizontalPass& pass, uint8_t* out) noexcept {
    const int32_t* weight = pass.weight;
    const int taps = pass.taps;
    for (int x = 0; x < pass.width; ++x, weight += taps) {
        const uint8_t* const from = row + pass.start[x];
        int32x4_t sums = vdupq_n_s32(0);
        int t = 0;
        for (; t + 4 <= taps; t += 4) {
            const uint32x4_t values = vmovl_u16(vget_low_u16(vmovl_u8(vld1_u8(from + t))));
            sums = vmlaq_s32(sums, vreinterpretq_s32_u32(values), vld1q_s32(weight + t));
        }
        int32_t sum = (1 << (kWeightBits - 1)) + vaddvq_s32(sums);
        for (; t < taps; ++t) sum += from[t] * weight[t];
        const int32_t value = sum >> kWeightBits;
        out[x] = static_cast<uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
    }
}

void horizontal(const uint8_t* const* rows, const HorizontalPass& pass, uint8_t* const* out) noexcept {
    const auto row = pass.channels == 1   ? horizontal_row_of_one
                     : pass.channels == 2 ? horizontal_row<2>
                     : pass.channels == 4 ? horizontal_row<4>
                                          : horizontal_row<3>;
    for (int r = 0; r < 2; ++r) row(rows[r], pass, out[r]);
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

void separate(const uint8_t* pixels, int width, int channels, uint8_t* const* planes) noexcept {
    if (channels != 3) return scalar_separate(pixels, width, channels, planes);
    for (int x = 0; x < width; x += 16, pixels += 48) {
        const uint8x16x3_t rgb = vld3q_u8(pixels);
        for (int c = 0; c < 3; ++c) vst1q_u8(planes[c] + x, rgb.val[c]);
    }
}

void to_grey(const uint8_t* rgb, int width, uint8_t* out) noexcept {
    const auto weighted = [](uint16x4_t red, uint16x4_t green, uint16x4_t blue) {
        const uint32x4_t sum = vmlal_n_u16(vmull_n_u16(red, 19595), green, 38470);
        return vrshrn_n_u32(vmlal_n_u16(sum, blue, 7471), 16);
    };
    for (int x = 0; x < width; x += 8, rgb += 24) {
        const uint8x8x3_t pixels = vld3_u8(rgb);
        const uint16x8_t red = vmovl_u8(pixels.val[0]), green = vmovl_u8(pixels.val[1]),
                         blue = vmovl_u8(pixels.val[2]);
        const uint16x4_t low = weighted(vget_low_u16(red), vget_low_u16(green), vget_low_u16(blue)),
                         high = weighted(vget_high_u16(red), vget_high_u16(green), vget_high_u16(blue));
        vst1_u8(out + x, vmovn_u16(vcombine_u16(low, high)));
    }
}

}  // namespace

constinit const Kernels kNeonKernels{"neon",
                                     false,
                                     horizontal,
                                     vertical,
                                     separate,
                                     to_grey,
                                     scalar_look_up_f32,
                                     scalar_look_up_f16,
                                     scalar_blur_across,
                                     scalar_blur_down,
                                     scalar_interpolate,
                                     scalar_divide_places,
                                     scalar_gain_hsv,
                                     scalar_linear_across,
                                     scalar_mix_rows,
                                     scalar_mirror};

}  // namespace standpipe
