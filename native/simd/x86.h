// The x86-64 kernels. They are compiled once for each set of instructions that this is included for, and so
// everything here belongs to the file that includes it.
//
// All vectors but those of gain_hsv and divide_places, which take twice as long otherwise, have 128 bits.
// After dense multiplications of 256 bits and more libjpeg, which has nine tenths of a row's time, takes 6 to
// 14% longer: many processors lower their clock then for a millisecond or two.
#pragma once

#include <cstring>

#include "simd/kernels.h"
#include "simd/x86_pictures.h"
#include "simd/x86_vectors.h"

namespace standpipe {
namespace {

// Sums of products with both halves of the weights. Dot::add(sum, x, w) adds to each 32-bit lane of `sum` the
// products of both 16-bit lanes of x and w that it consists of.
template <typename Dot>
struct Sums {
    __m128i hi = _mm_setzero_si128(), lo = _mm_set1_epi32(1 << (kWeightBits - 1));

    void add(__m128i x, __m128i weights_hi, __m128i weights_lo) {
        hi = Dot::add(hi, x, weights_hi);
        lo = Dot::add(lo, x, weights_lo);
    }
    __m128i rounded() const {
        return _mm_srai_epi32(_mm_add_epi32(hi, _mm_srai_epi32(lo, kSplitBits)), kWeightBits - kSplitBits);
    }
};

template <typename Dot>
inline __m128i to_bytes(const Sums<Dot> (&sums)[4]) {
    return _mm_packus_epi16(_mm_packs_epi32(sums[0].rounded(), sums[1].rounded()),
                            _mm_packs_epi32(sums[2].rounded(), sums[3].rounded()));
}

// Two rows at a time, so that weights are loaded once for both. Pairs is the number of tap pairs where it is
// small, else 0: read it from the pass.
template <typename Dot, int C, int Pairs>
void horizontal_pass(const uint8_t* const* rows, const HorizontalPass& pass, uint8_t* const* out) {
    static constexpr Lanes<C> lanes;
    const __m128i taps01 = load(lanes.taps01), taps23 = load(lanes.taps23), packed = load(lanes.packed);
    const int pairs = Pairs ? Pairs : pass.pairs;
    const int32_t* weights = pass.split;
    const int32_t* start = pass.start;
    uint8_t *out0 = out[0], *out1 = out[1];
    for (int g = 0, groups = pass.groups; g < groups;
         ++g, start += kGroup, out0 += kGroup * C, out1 += kGroup * C) {
        Sums<Dot> sums0[kGroup], sums1[kGroup];
        const int32_t* w = weights;
        for (int p = 0; p < pairs; p += 2, w += 4 * kGroup) {
#pragma GCC unroll 4
            for (int k = 0; k < kGroup; ++k) {
                const int at = start[k] + 2 * C * p;
                const __m128i x0 = load(rows[0] + at), x1 = load(rows[1] + at);
                const __m128i hi = spread(w + 2 * k), lo = spread(w + 2 * k + 1);
                sums0[k].add(_mm_shuffle_epi8(x0, taps01), hi, lo);
                sums1[k].add(_mm_shuffle_epi8(x1, taps01), hi, lo);
                if (p + 1 == pairs) continue;
                const __m128i hi2 = spread(w + 2 * (kGroup + k)), lo2 = spread(w + 2 * (kGroup + k) + 1);
                sums0[k].add(_mm_shuffle_epi8(x0, taps23), hi2, lo2);
                sums1[k].add(_mm_shuffle_epi8(x1, taps23), hi2, lo2);
            }
        }
        weights += 2 * kGroup * pairs;
        store(out0, _mm_shuffle_epi8(to_bytes(sums0), packed));
        store(out1, _mm_shuffle_epi8(to_bytes(sums1), packed));
    }
}

// Sums over the lanes of four outputs each, modulo 2^32: the whole sum fits.
template <typename Dot>
struct LaneSums {
    __m128i each[kGroup];

    void add(int k, const uint8_t* from, int eights, const int32_t* weights) {
        __m128i hi = _mm_setzero_si128(), lo = hi;
        for (int i = 0; i < eights; ++i, from += 2 * kGroup, weights += 2 * kGroup) {
            const __m128i x = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
            hi = Dot::add(hi, x, load(weights));
            lo = Dot::add(lo, x, load(weights + kGroup));
        }
        each[k] = _mm_add_epi32(_mm_slli_epi32(hi, kSplitBits), lo);
    }
    void write(uint8_t* out) const {
        const __m128i sums =
            _mm_hadd_epi32(_mm_hadd_epi32(each[0], each[1]), _mm_hadd_epi32(each[2], each[3]));
        const __m128i values =
            _mm_srai_epi32(_mm_add_epi32(sums, _mm_set1_epi32(1 << (kWeightBits - 1))), kWeightBits);
        const __m128i words = _mm_packs_epi32(values, values);
        const int bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
        std::memcpy(out, &bytes, sizeof bytes);
    }
};

// One channel: eight taps of an output at a time, instead of two taps of each channel. Eights is the number
// of these times where it is small, else 0.
template <typename Dot, int Eights>
void horizontal_of_one(const uint8_t* const* rows, const HorizontalPass& pass, uint8_t* const* out) {
    const int eights = Eights ? Eights : pass.pairs / kGroup;
    const int32_t* w = pass.split;
    for (int g = 0; g < pass.groups; ++g) {
        LaneSums<Dot> sums0, sums1;
#pragma GCC unroll 4
        for (int k = 0; k < kGroup; ++k, w += 2 * kGroup * eights) {
            const int start = pass.start[g * kGroup + k];
            sums0.add(k, rows[0] + start, eights, w);
            sums1.add(k, rows[1] + start, eights, w);
        }
        sums0.write(out[0] + g * kGroup);
        sums1.write(out[1] + g * kGroup);
    }
}

template <typename Dot, int C>
void horizontal_of(const uint8_t* const* rows, const HorizontalPass& pass, uint8_t* const* out) {
    switch (pass.pairs) {
        case 1: return horizontal_pass<Dot, C, 1>(rows, pass, out);
        case 2: return horizontal_pass<Dot, C, 2>(rows, pass, out);
        case 3: return horizontal_pass<Dot, C, 3>(rows, pass, out);
        default: return horizontal_pass<Dot, C, 0>(rows, pass, out);
    }
}

template <typename Dot>
void horizontal(const uint8_t* const* rows, const HorizontalPass& pass, uint8_t* const* out) noexcept {
    switch (pass.channels) {
        case 1:
            switch (pass.pairs / kGroup) {
                case 1: return horizontal_of_one<Dot, 1>(rows, pass, out);
                case 2: return horizontal_of_one<Dot, 2>(rows, pass, out);
                default: return horizontal_of_one<Dot, 0>(rows, pass, out);
            }
        case 2: return horizontal_pass<Dot, 2, 0>(rows, pass, out);
        case 4: return horizontal_of<Dot, 4>(rows, pass, out);
        default: return horizontal_of<Dot, 3>(rows, pass, out);
    }
}

// Two rows and their weights, in every lane.
struct RowPair {
    const uint8_t *a, *b;
    __m128i hi, lo;

    // Rows t and t + 1; an odd last row is paired with itself, at weight zero.
    RowPair() = default;
    RowPair(const uint8_t* const* rows, const int32_t* weight, int t, int taps) {
        const bool both = t + 1 < taps;
        const SplitWeights w = split_weights(weight[t], both ? weight[t + 1] : 0);
        a = rows[t];
        b = rows[both ? t + 1 : t];
        hi = spread(&w.hi);
        lo = spread(&w.lo);
    }
};

// 16 bytes of sums; unpacking and packing leave their order.
template <typename Dot>
struct Block {
    Sums<Dot> sums[4];

    void add(const RowPair& pair, size_t i) {
        const __m128i zero = _mm_setzero_si128(), a = load(pair.a + i), b = load(pair.b + i);
        const __m128i low = _mm_unpacklo_epi8(a, b), high = _mm_unpackhi_epi8(a, b);
        sums[0].add(_mm_unpacklo_epi8(low, zero), pair.hi, pair.lo);
        sums[1].add(_mm_unpackhi_epi8(low, zero), pair.hi, pair.lo);
        sums[2].add(_mm_unpacklo_epi8(high, zero), pair.hi, pair.lo);
        sums[3].add(_mm_unpackhi_epi8(high, zero), pair.hi, pair.lo);
    }
};

template <typename Dot, int Pairs>
void vertical_pass(const uint8_t* const* rows, const int32_t* weight, int taps, size_t bytes, uint8_t* out) {
    RowPair pairs[Pairs];
    for (int p = 0; p < Pairs; ++p) pairs[p] = RowPair(rows, weight, 2 * p, taps);
    for (size_t i = 0; i < bytes; i += 16) {
        Block<Dot> block;
        for (int p = 0; p < Pairs; ++p) block.add(pairs[p], i);
        store(out + i, to_bytes(block.sums));
    }
}

// Up to six taps, their weights are spread over registers once per row and not once per 16 bytes.
template <typename Dot>
void vertical(const uint8_t* const* rows, const int32_t* weight, int taps, size_t bytes,
              uint8_t* out) noexcept {
    switch ((taps + 1) / 2) {
        case 1: return vertical_pass<Dot, 1>(rows, weight, taps, bytes, out);
        case 2: return vertical_pass<Dot, 2>(rows, weight, taps, bytes, out);
        case 3: return vertical_pass<Dot, 3>(rows, weight, taps, bytes, out);
    }
    for (size_t i = 0; i < bytes; i += 16) {
        Block<Dot> block;
        for (int t = 0; t < taps; t += 2) block.add(RowPair(rows, weight, t, taps), i);
        store(out + i, to_bytes(block.sums));
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

void separate(const uint8_t* pixels, int width, int channels, uint8_t* const* planes) noexcept {
    if (channels != 3) return scalar_separate(pixels, width, channels, planes);
    for (int x = 0; x < width; x += 8, pixels += 24) {
        const __m128i a = load(pixels), b = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(pixels + 16));
        for (int c = 0; c < 3; ++c)
            _mm_storel_epi64(reinterpret_cast<__m128i*>(planes[c] + x), channel_of(a, b, c));
    }
}

// Four pixels of 12 bytes as pairs of 16-bit lanes: red and green, green and blue. Weights are signed, so
// that green has its own in two halves.
template <typename Dot>
void to_grey(const uint8_t* rgb, int width, uint8_t* out) noexcept {
    const __m128i red_green = _mm_setr_epi8(0, -1, 1, -1, 3, -1, 4, -1, 6, -1, 7, -1, 9, -1, 10, -1),
                  green_blue = _mm_setr_epi8(1, -1, 2, -1, 4, -1, 5, -1, 7, -1, 8, -1, 10, -1, 11, -1),
                  first = _mm_set1_epi32(19235 << 16 | 19595), second = _mm_set1_epi32(7471 << 16 | 19235);
    const auto four = [&](const uint8_t* from) {
        const __m128i x = load(from);
        const __m128i sum = Dot::add(_mm_set1_epi32(0x8000), _mm_shuffle_epi8(x, red_green), first);
        return _mm_srli_epi32(Dot::add(sum, _mm_shuffle_epi8(x, green_blue), second), 16);
    };
    for (int x = 0; x < width; x += 16, rgb += 48)
        store(out + x, _mm_packus_epi16(_mm_packs_epi32(four(rgb), four(rgb + 12)),
                                        _mm_packs_epi32(four(rgb + 24), four(rgb + 36))));
}

// Eight indices per load, four values per store.
void look_up_f32(const uint8_t* bytes, int width, const float* table, float* out) noexcept {
    const auto value = [table](uint64_t index) {
        int bits;
        std::memcpy(&bits, table + (index & 255), sizeof bits);
        return bits;
    };
    int x = 0;
    for (; x + 8 <= width; x += 8) {
        uint64_t indices;
        std::memcpy(&indices, bytes + x, 8);
        for (int half = 0; half < 8; half += 4, indices >>= 32) {
            __m128i four = _mm_cvtsi32_si128(value(indices));
            four = _mm_insert_epi32(four, value(indices >> 8), 1);
            four = _mm_insert_epi32(four, value(indices >> 16), 2);
            four = _mm_insert_epi32(four, value(indices >> 24), 3);
            store(out + x + half, four);
        }
    }
    scalar_look_up_f32(bytes + x, width - x, table, out + x);
}

// 16 sums of a blur, in order.
template <typename Dot>
struct BlurSums {
    __m128i sums[4];

    BlurSums(const int16_t* const* rows, const int16_t* weight, int taps, size_t i, uint32_t first) {
        for (__m128i& sum : sums) sum = _mm_set1_epi32(static_cast<int>(first));
        for (int t = 0; t < taps; t += 2) {
            int32_t both;
            std::memcpy(&both, weight + t, sizeof both);
            const __m128i w = spread(&both);
            for (int half = 0; half < 2; ++half) {
                const __m128i a = load(rows[t] + i + 8 * half), b = load(rows[t + 1] + i + 8 * half);
                sums[2 * half] = Dot::add(sums[2 * half], _mm_unpacklo_epi16(a, b), w);
                sums[2 * half + 1] = Dot::add(sums[2 * half + 1], _mm_unpackhi_epi16(a, b), w);
            }
        }
    }
};

// The last 16 are made together, whether or not some are made twice.
template <typename Dot>
void blur_across(const int16_t* const* rows, const int16_t* weight, int taps, size_t count,
                 int16_t* out) noexcept {
    if (count < 16) return scalar_blur_across(rows, weight, taps, count, out);
    const auto less = [](__m128i sum) {
        return _mm_sub_epi32(_mm_srli_epi32(sum, 8), _mm_set1_epi32(1 << 15));
    };
    for (size_t begin = 0; begin < count; begin += 16) {
        const size_t i = begin + 16 > count ? count - 16 : begin;
        const auto [sums] = BlurSums<Dot>(rows, weight, taps, i, 1U << 7);
        store(out + i, _mm_packs_epi32(less(sums[0]), less(sums[1])));
        store(out + i + 8, _mm_packs_epi32(less(sums[2]), less(sums[3])));
    }
}

template <typename Dot>
void blur_down(const int16_t* const* rows, const int16_t* weight, int taps, size_t count,
               uint8_t* out) noexcept {
    if (count < 16) return scalar_blur_down(rows, weight, taps, count, out);
    for (size_t begin = 0; begin < count; begin += 16) {
        const size_t i = begin + 16 > count ? count - 16 : begin;
        auto [sums] = BlurSums<Dot>(rows, weight, taps, i, (1U << 31) + (1U << 23));
        for (__m128i& sum : sums) sum = _mm_srli_epi32(sum, 24);
        store(out + i,
              _mm_packus_epi16(_mm_packs_epi32(sums[0], sums[1]), _mm_packs_epi32(sums[2], sums[3])));
    }
}

template <typename Dot>
constexpr Kernels kernels_of(const char* name) {
    return {name,         true,          horizontal<Dot>,    vertical<Dot>,    separate,
            to_grey<Dot>, look_up_f32,   scalar_look_up_f16, blur_across<Dot>, blur_down<Dot>,
            interpolate,  divide_places, gain_hsv,           linear_across,    mix_rows,
            mirror};
}

}  // namespace
}  // namespace standpipe
