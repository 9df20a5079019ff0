#include <immintrin.h>

#include <bit>
#include <cstring>

#include "simd.h"

namespace penstock {
namespace {

inline const __m128i* at128(const uint8_t* p) { return reinterpret_cast<const __m128i*>(p); }
inline __m256i load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

// 16 bytes hold five RGB pixels. Taps 0 and 1 as 16-bit lanes R0 R1 G0 G1 B0 B1 0 0; likewise taps 2 and 3.
inline __m256i taps01() {
    return _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
}
inline __m256i taps23() {
    return _mm256_broadcastsi128_si256(
        _mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
}

inline __m256i two_pixels(const uint8_t* row, const int32_t* start) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(at128(row + start[0]))),
                                   _mm_loadu_si128(at128(row + start[1])), 1);
}

inline __m256i rounded(__m256i hi, __m256i lo) {
    const __m256i round = _mm256_set1_epi32(1 << (kWeightBits - 1));
    return _mm256_srai_epi32(_mm256_add_epi32(_mm256_slli_epi32(hi, kSplitBits), _mm256_add_epi32(lo, round)),
                             kWeightBits);
}

// Two outputs: the sums of both halves of their weights.
struct Sums {
    __m256i hi = _mm256_setzero_si256(), lo = _mm256_setzero_si256();

    void add(__m256i pixels, const int16_t* weights) {
        hi = _mm256_add_epi32(hi, _mm256_madd_epi16(pixels, load(weights)));
        lo = _mm256_add_epi32(lo, _mm256_madd_epi16(pixels, load(weights + 8 * kGroup)));
    }
};

// Outputs i and i + 4 share a register, so that packing four registers to bytes leaves all eight in order.
constexpr int8_t kOrder[kGroup] = {0, 4, 1, 5, 2, 6, 3, 7};

// Pairs is the number of tap pairs where it is small, else 0: read it from the plan.
template <int Pairs>
void horizontal_pass(const uint8_t* row, const HorizontalPlan& plan, uint8_t* out) {
    const int pairs = Pairs ? Pairs : plan.pairs();
    const __m256i first = taps01(), second = taps23();
    const __m256i pack = _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1,  //
                                          0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    const int16_t* w = plan.split.data();
    const int32_t* start = plan.group_start.data();
    for (int g = 0, groups = plan.groups(); g < groups; ++g, start += kGroup, out += 3 * kGroup) {
        Sums sums[4];
        const uint8_t* from = row;
        int p = 0;
        for (; p + 2 <= pairs; p += 2, w += 4 * 8 * kGroup, from += 12)
            for (int k = 0; k < 4; ++k) {
                const __m256i x = two_pixels(from, start + 2 * k);
                sums[k].add(_mm256_shuffle_epi8(x, first), w + 16 * k);
                sums[k].add(_mm256_shuffle_epi8(x, second), w + 2 * 8 * kGroup + 16 * k);
            }
        if (p < pairs) {
            for (int k = 0; k < 4; ++k)
                sums[k].add(_mm256_shuffle_epi8(two_pixels(from, start + 2 * k), first), w + 16 * k);
            w += 2 * 8 * kGroup;
        }
        const __m256i words01 =
            _mm256_packs_epi32(rounded(sums[0].hi, sums[0].lo), rounded(sums[1].hi, sums[1].lo));
        const __m256i words23 =
            _mm256_packs_epi32(rounded(sums[2].hi, sums[2].lo), rounded(sums[3].hi, sums[3].lo));
        const __m256i bytes = _mm256_shuffle_epi8(_mm256_packus_epi16(words01, words23), pack);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_castsi256_si128(bytes));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 12), _mm256_extracti128_si256(bytes, 1));
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

inline __m256i pair_of(int32_t a, int32_t b) {
    return _mm256_set1_epi32(
        static_cast<int32_t>((static_cast<uint32_t>(b) << 16) | (static_cast<uint32_t>(a) & 0xffff)));
}

// Weights of two rows, in every lane.
struct RowPair {
    const uint8_t *a, *b;
    __m256i hi, lo;
};

// 32 bytes of sums; unpack and pack both work inside 128-bit lanes, so the order comes out as it went in.
struct Block {
    __m256i hi[4], lo[4];

    void add(const RowPair& pair, size_t i) {
        const __m256i zero = _mm256_setzero_si256();
        const __m256i a = load(pair.a + i), b = load(pair.b + i);
        const __m256i low = _mm256_unpacklo_epi8(a, b), high = _mm256_unpackhi_epi8(a, b);
        const __m256i part[4] = {_mm256_unpacklo_epi8(low, zero), _mm256_unpackhi_epi8(low, zero),
                                 _mm256_unpacklo_epi8(high, zero), _mm256_unpackhi_epi8(high, zero)};
        for (int k = 0; k < 4; ++k) {
            hi[k] = _mm256_add_epi32(hi[k], _mm256_madd_epi16(part[k], pair.hi));
            lo[k] = _mm256_add_epi32(lo[k], _mm256_madd_epi16(part[k], pair.lo));
        }
    }

    __m256i bytes() const {
        const __m256i words01 = _mm256_packs_epi32(rounded(hi[0], lo[0]), rounded(hi[1], lo[1]));
        const __m256i words23 = _mm256_packs_epi32(rounded(hi[2], lo[2]), rounded(hi[3], lo[3]));
        return _mm256_packus_epi16(words01, words23);
    }
};

// An odd last row is paired with itself, at weight zero.
RowPair row_pair(const uint8_t* const* rows, const int32_t* weight, int t, int taps) {
    const bool both = t + 1 < taps;
    const int32_t a = weight[t], b = both ? weight[t + 1] : 0;
    return {rows[t], rows[both ? t + 1 : t], pair_of(a >> kSplitBits, b >> kSplitBits),
            pair_of(a & kSplitMask, b & kSplitMask)};
}

template <int Pairs>
void vertical_pass(const RowPair* pairs, size_t bytes, uint8_t* out) {
    for (size_t i = 0; i < bytes; i += 32) {
        Block block{};
        for (int p = 0; p < Pairs; ++p) block.add(pairs[p], i);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), block.bytes());
    }
}

// Up to six taps, their weights are spread over registers once per row and not once per 32 bytes.
void vertical(const uint8_t* const* rows, const int32_t* weight, int taps, size_t bytes,
              uint8_t* out) noexcept {
    RowPair pairs[3];
    if (taps <= 6) {
        const int count = (taps + 1) / 2;
        for (int p = 0; p < count; ++p) pairs[p] = row_pair(rows, weight, 2 * p, taps);
        if (count == 1) vertical_pass<1>(pairs, bytes, out);
        else if (count == 2) vertical_pass<2>(pairs, bytes, out);
        else vertical_pass<3>(pairs, bytes, out);
        return;
    }
    for (size_t i = 0; i < bytes; i += 32) {
        Block block{};
        for (int t = 0; t < taps; t += 2) block.add(row_pair(rows, weight, t, taps), i);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), block.bytes());
    }
}

// The bytes of one channel of 8 RGB pixels.
inline __m128i channel_of(__m128i a, __m128i b, int c) {
    const __m128i from_a = _mm_add_epi8(
        _mm_setr_epi8(0, 3, 6, 9, 12, 15, 18, 21, -128, -128, -128, -128, -128, -128, -128, -128),
        _mm_set1_epi8(static_cast<char>(c)));
    // Indices of 16 and above belong to the second load; a set high bit makes pshufb write zero.
    const __m128i in_a = _mm_or_si128(from_a, _mm_cmpgt_epi8(from_a, _mm_set1_epi8(15)));
    const __m128i in_b = _mm_sub_epi8(from_a, _mm_set1_epi8(16));
    return _mm_or_si128(_mm_shuffle_epi8(a, in_a), _mm_shuffle_epi8(b, in_b));
}

void separate(const uint8_t* rgb, int width, uint8_t* const* planes) noexcept {
    for (int x = 0; x < width; x += 8, rgb += 24) {
        const __m128i a = _mm_loadu_si128(at128(rgb)), b = _mm_loadl_epi64(at128(rgb + 16));
        for (int c = 0; c < 3; ++c)
            _mm_storel_epi64(reinterpret_cast<__m128i*>(planes[c] + x), channel_of(a, b, c));
    }
}

// Eight indices per load, four values per store.
void look_up_f32(const uint8_t* bytes, int width, const float* table, float* out) noexcept {
    const auto value = [table](uint64_t index) { return std::bit_cast<int>(table[index & 255]); };
    int x = 0;
    for (; x + 8 <= width; x += 8) {
        uint64_t indices;
        std::memcpy(&indices, bytes + x, 8);
        for (int half = 0; half < 8; half += 4, indices >>= 32) {
            __m128i four = _mm_cvtsi32_si128(value(indices));
            four = _mm_insert_epi32(four, value(indices >> 8), 1);
            four = _mm_insert_epi32(four, value(indices >> 16), 2);
            four = _mm_insert_epi32(four, value(indices >> 24), 3);
            _mm_storeu_si128(reinterpret_cast<__m128i*>(out + x + half), four);
        }
    }
    kScalarKernels.look_up_f32(bytes + x, width - x, table, out + x);
}

}  // namespace

extern const Kernels kAvx2Kernels;
const Kernels kAvx2Kernels{
    "avx2", kOrder, horizontal, vertical, separate, look_up_f32, kScalarKernels.look_up_f16};

}  // namespace penstock
