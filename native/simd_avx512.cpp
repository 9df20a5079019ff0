#include <immintrin.h>

#include "simd.h"

namespace penstock {
namespace {

inline const __m128i* at128(const uint8_t* p) { return reinterpret_cast<const __m128i*>(p); }

// 16 bytes hold five RGB pixels. Taps 0 and 1 as 16-bit lanes R0 R1 G0 G1 B0 B1 0 0; likewise taps 2 and 3.
inline __m512i taps01() {
    return _mm512_broadcast_i32x4(_mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
}
inline __m512i taps23() {
    return _mm512_broadcast_i32x4(_mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
}

inline __m512i four_pixels(const uint8_t* row, const int32_t* start) {
    __m512i x = _mm512_castsi128_si512(_mm_loadu_si128(at128(row + start[0])));
    x = _mm512_inserti32x4(x, _mm_loadu_si128(at128(row + start[1])), 1);
    x = _mm512_inserti32x4(x, _mm_loadu_si128(at128(row + start[2])), 2);
    return _mm512_inserti32x4(x, _mm_loadu_si128(at128(row + start[3])), 3);
}

inline __m512i rounded(__m512i hi, __m512i lo) {
    const __m512i round = _mm512_set1_epi32(1 << (kWeightBits - 1));
    return _mm512_srai_epi32(_mm512_add_epi32(_mm512_slli_epi32(hi, kSplitBits), _mm512_add_epi32(lo, round)),
                             kWeightBits);
}

constexpr int8_t kOrder[kGroup] = {0, 1, 2, 3, 4, 5, 6, 7};

// Pairs is the number of tap pairs where it is small, else 0: read it from the plan.
template <int Pairs>
void horizontal_pass(const uint8_t* row, const HorizontalPlan& plan, uint8_t* out) {
    const int pairs = Pairs ? Pairs : plan.pairs();
    const __m512i first = taps01(), second = taps23();
    const __m128i pack = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    const int16_t* w = plan.split.data();
    const int32_t* start = plan.group_start.data();
    constexpr int part = 8 * kGroup;
    for (int g = 0, groups = plan.groups(); g < groups; ++g, start += kGroup) {
        __m512i hi[2] = {}, lo[2] = {};
        const auto add = [&](int half, __m512i pixels, const int16_t* weights) {
            hi[half] =
                _mm512_add_epi32(hi[half], _mm512_madd_epi16(pixels, _mm512_load_si512(weights + 32 * half)));
            lo[half] = _mm512_add_epi32(
                lo[half], _mm512_madd_epi16(pixels, _mm512_load_si512(weights + part + 32 * half)));
        };
        const uint8_t* from = row;
        int p = 0;
        for (; p + 2 <= pairs; p += 2, w += 4 * part, from += 12)
            for (int half = 0; half < 2; ++half) {
                const __m512i x = four_pixels(from, start + 4 * half);
                add(half, _mm512_shuffle_epi8(x, first), w);
                add(half, _mm512_shuffle_epi8(x, second), w + 2 * part);
            }
        if (p < pairs) {
            for (int half = 0; half < 2; ++half)
                add(half, _mm512_shuffle_epi8(four_pixels(from, start + 4 * half), first), w);
            w += 2 * part;
        }
        for (int half = 0; half < 2; ++half, out += 12) {
            const __m512i sum = _mm512_max_epi32(rounded(hi[half], lo[half]), _mm512_setzero_si512());
            _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                             _mm_shuffle_epi8(_mm512_cvtusepi32_epi8(sum), pack));
        }
    }
}

void horizontal(const uint8_t* row, const HorizontalPlan& plan, uint8_t* out) noexcept {
    switch (plan.pairs()) {
        case 1: return horizontal_pass<1>(row, plan, out);
        case 2: return horizontal_pass<2>(row, plan, out);
        case 3: return horizontal_pass<3>(row, plan, out);
        default: return horizontal_pass<0>(row, plan, out);
    }
}

inline __m512i pair_of(int32_t a, int32_t b) {
    return _mm512_set1_epi32(
        static_cast<int32_t>((static_cast<uint32_t>(b) << 16) | (static_cast<uint32_t>(a) & 0xffff)));
}

// 64 bytes at a time; unpack and pack both work inside 128-bit lanes, so the order comes out as it went in.
void vertical(const uint8_t* const* rows, const int32_t* weight, int taps, size_t bytes,
              uint8_t* out) noexcept {
    const __m512i zero = _mm512_setzero_si512();
    for (size_t i = 0; i < bytes; i += 64) {
        __m512i hi[4] = {zero, zero, zero, zero}, lo[4] = {zero, zero, zero, zero};
        for (int t = 0; t < taps; t += 2) {
            const bool both = t + 1 < taps;
            const int32_t wa = weight[t], wb = both ? weight[t + 1] : 0;
            const __m512i a = _mm512_loadu_si512(rows[t] + i),
                          b = both ? _mm512_loadu_si512(rows[t + 1] + i) : zero;
            const __m512i whi = pair_of(wa >> kSplitBits, wb >> kSplitBits);
            const __m512i wlo = pair_of(wa & kSplitMask, wb & kSplitMask);
            const __m512i low = _mm512_unpacklo_epi8(a, b), high = _mm512_unpackhi_epi8(a, b);
            const __m512i part[4] = {_mm512_unpacklo_epi8(low, zero), _mm512_unpackhi_epi8(low, zero),
                                     _mm512_unpacklo_epi8(high, zero), _mm512_unpackhi_epi8(high, zero)};
            for (int k = 0; k < 4; ++k) {
                hi[k] = _mm512_add_epi32(hi[k], _mm512_madd_epi16(part[k], whi));
                lo[k] = _mm512_add_epi32(lo[k], _mm512_madd_epi16(part[k], wlo));
            }
        }
        const __m512i words01 = _mm512_packs_epi32(rounded(hi[0], lo[0]), rounded(hi[1], lo[1]));
        const __m512i words23 = _mm512_packs_epi32(rounded(hi[2], lo[2]), rounded(hi[3], lo[3]));
        _mm512_storeu_si512(out + i, _mm512_packus_epi16(words01, words23));
    }
}

struct Planes {
    __m128i channel[3];
};

// 16 RGB pixels to three vectors of 16 bytes.
inline Planes deinterleave(const uint8_t* rgb) {
    const __m128i a = _mm_loadu_si128(at128(rgb)), b = _mm_loadu_si128(at128(rgb + 16)),
                  c = _mm_loadu_si128(at128(rgb + 32));
    const auto gather = [&](__m128i ma, __m128i mb, __m128i mc) {
        return _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(a, ma), _mm_shuffle_epi8(b, mb)),
                            _mm_shuffle_epi8(c, mc));
    };
    return {{gather(_mm_setr_epi8(0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1),
                    _mm_setr_epi8(-1, -1, -1, -1, -1, -1, 2, 5, 8, 11, 14, -1, -1, -1, -1, -1),
                    _mm_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 1, 4, 7, 10, 13)),
             gather(_mm_setr_epi8(1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1),
                    _mm_setr_epi8(-1, -1, -1, -1, -1, 0, 3, 6, 9, 12, 15, -1, -1, -1, -1, -1),
                    _mm_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 2, 5, 8, 11, 14)),
             gather(_mm_setr_epi8(2, 5, 8, 11, 14, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1),
                    _mm_setr_epi8(-1, -1, -1, -1, -1, 1, 4, 7, 10, 13, -1, -1, -1, -1, -1, -1),
                    _mm_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 3, 6, 9, 12, 15))}};
}

void separate(const uint8_t* rgb, int width, uint8_t* const* planes) noexcept {
    for (int x = 0; x < width; x += 16, rgb += 48) {
        const Planes pixels = deinterleave(rgb);
        for (int c = 0; c < 3; ++c)
            _mm_storeu_si128(reinterpret_cast<__m128i*>(planes[c] + x), pixels.channel[c]);
    }
}

}  // namespace

extern const Kernels kAvx2Kernels, kAvx512Kernels;
const Kernels kAvx512Kernels{
    "avx512", kOrder, horizontal, vertical, separate, kAvx2Kernels.look_up_f32, kScalarKernels.look_up_f16};

}  // namespace penstock
