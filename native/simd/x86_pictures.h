// The x86-64 kernels of whole pictures, warps and colours: a part of x86.h.
#pragma once

#include <cstring>

#include "simd/kernels.h"
#include "simd/x86_vectors.h"

namespace standpipe {
namespace {

// The weights of both rows, for bytes of them in turn, and of both columns, by the fraction of a place.
struct PlaceWeights {
    alignas(16) uint8_t rows[1 << kPlaceBits][16] = {};
    alignas(16) int16_t columns[1 << kPlaceBits][8] = {};

    constexpr PlaceWeights() {
        for (int fraction = 0; fraction < 1 << kPlaceBits; ++fraction)
            for (int i = 0; i < 16; ++i) {
                const int weight = i % 2 ? fraction : (1 << kPlaceBits) - fraction;
                rows[fraction][i] = static_cast<uint8_t>(weight);
                columns[fraction][i / 2] =
                    static_cast<int16_t>(i / 2 % 2 ? fraction : (1 << kPlaceBits) - fraction);
            }
    }
};

// Four RGB pixels whose neighbours are all inside. Eight bytes of a row have both of its neighbours, and so a
// pixel more must be there.
struct FourPlaces {
    const WarpSource& from;

    // Returns a bit for each that isn't in [least, most of an axis].
    int away(const int32_t* x, const int32_t* y, int least, int most_x, int most_y) const {
        const auto negative = [&](const int32_t* places, int most) {
            const __m128i pixel = _mm_srai_epi32(load(places), kPlaceBits);
            return _mm_or_si128(_mm_sub_epi32(pixel, _mm_set1_epi32(least)),
                                _mm_sub_epi32(_mm_set1_epi32(most), pixel));
        };
        return _mm_movemask_ps(_mm_castsi128_ps(_mm_or_si128(negative(x, most_x), negative(y, most_y))));
    }
    bool inside(const int32_t* x, const int32_t* y) const {
        return away(x, y, 0, from.width - 3, from.height - 2) == 0;
    }
    // Returns whether none has a neighbour inside.
    bool outside(const int32_t* x, const int32_t* y) const {
        return away(x, y, -1, from.width - 1, from.height - 1) == 15;
    }
    // A pixel as 32-bit lanes.
    __m128i pixel(int32_t x, int32_t y) const {
        static constexpr PlaceWeights weights;
        // R0 and R0 below, R1 and R1 below, and the other channels likewise.
        const __m128i pairs = _mm_setr_epi8(0, 8, 3, 11, 1, 9, 4, 12, 2, 10, 5, 13, -1, -1, -1, -1);
        constexpr int kFraction = (1 << kPlaceBits) - 1;
        const ptrdiff_t row = 3 * static_cast<ptrdiff_t>(from.width);
        const uint8_t* const above =
            from.pixels + (y >> kPlaceBits) * row + 3 * static_cast<ptrdiff_t>(x >> kPlaceBits);
        const __m128i both =
            _mm_unpacklo_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(above)),
                               _mm_loadl_epi64(reinterpret_cast<const __m128i*>(above + row)));
        const __m128i columns =
            _mm_maddubs_epi16(_mm_shuffle_epi8(both, pairs), load(weights.rows[y & kFraction]));
        const __m128i sum = _mm_madd_epi16(columns, load(weights.columns[x & kFraction]));
        return _mm_srli_epi32(_mm_add_epi32(sum, _mm_set1_epi32(1 << (2 * kPlaceBits - 1))), 2 * kPlaceBits);
    }
};

// Three bytes of each 32-bit lane, one after another.
inline void store_pixels(uint8_t* to, __m128i packed) {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), packed);
    const int32_t last = _mm_extract_epi32(packed, 2);
    std::memcpy(to + 8, &last, sizeof last);
}

void interpolate(const WarpSource& from, const int32_t* x, const int32_t* y, int count,
                 uint8_t* out) noexcept {
    if (from.channels != 3) return scalar_interpolate(from, x, y, count, out);
    const FourPlaces places{from};
    const __m128i packed = load(Lanes<3>().packed);
    const __m128i fill =
        _mm_shuffle_epi8(_mm_cvtsi32_si128(from.fill[0] | from.fill[1] << 8 | from.fill[2] << 16),
                         _mm_setr_epi8(0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, -1, -1, -1, -1));
    int i = 0;
    for (; i + 4 <= count; i += 4, out += 12) {
        if (!places.inside(x + i, y + i)) {
            if (places.outside(x + i, y + i)) store_pixels(out, fill);
            else scalar_interpolate(from, x + i, y + i, 4, out);
            continue;
        }
        const auto pixel = [&](int k) { return places.pixel(x[i + k], y[i + k]); };
        const __m128i bytes =
            _mm_packus_epi16(_mm_packs_epi32(pixel(0), pixel(1)), _mm_packs_epi32(pixel(2), pixel(3)));
        store_pixels(out, _mm_shuffle_epi8(bytes, packed));
    }
    scalar_interpolate(from, x + i, y + i, count - i, out);
}

// The second operand of a maximum is the result where the first one is no number.
void divide_places(const PlaceRow& row, int first, int count, int32_t* x, int32_t* y) noexcept {
    const auto all = [](double value) { return _mm256_set1_pd(value); };
    for (int i = 0; i < count; i += 4) {
        const __m256d at = _mm256_add_pd(all(first + i), _mm256_setr_pd(0, 1, 2, 3));
        const auto part = [&](double start, double step) {
            return _mm256_add_pd(all(start), _mm256_mul_pd(all(step), at));
        };
        const __m256d scale = _mm256_div_pd(all(row.one), part(row.depth, row.step_depth));
        const auto place = [&](__m256d value) {
            value = _mm256_max_pd(_mm256_mul_pd(value, scale), all(-row.most));
            return _mm256_cvtpd_epi32(_mm256_min_pd(value, all(row.most)));
        };
        store(x + i, _mm_sub_epi32(place(part(row.x, row.step_x)), _mm_set1_epi32(row.left)));
        store(y + i, _mm_sub_epi32(place(part(row.y, row.step_y)), _mm_set1_epi32(row.top)));
    }
}

// Five pixels at once. A byte behind them is overwritten by the next ones, so at least one is left.
void mirror(const uint8_t* rgb, int width, uint8_t* out) noexcept {
    const __m128i places = _mm_setr_epi8(12, 13, 14, 9, 10, 11, 6, 7, 8, 3, 4, 5, 0, 1, 2, -1);
    for (; width > 5; width -= 5, out += 15)
        store(out, _mm_shuffle_epi8(load(rgb + 3 * (width - 5)), places));
    scalar_mirror(rgb, width, out);
}

// Sixteen pixels, a channel in 16-bit lanes: eight in each half of a vector.
struct SixteenPixels {
    __m256i r, g, b;

    // A half has its pixels' bytes 0 to 15, and 8 to 23.
    static SixteenPixels from(const uint8_t* rgb) {
        const __m256i first = _mm256_set_m128i(load(rgb + 24), load(rgb)),
                      last = _mm256_set_m128i(load(rgb + 32), load(rgb + 8));
        const auto channel = [&](__m128i of_first, __m128i of_last) {
            return _mm256_or_si256(_mm256_shuffle_epi8(first, _mm256_broadcastsi128_si256(of_first)),
                                   _mm256_shuffle_epi8(last, _mm256_broadcastsi128_si256(of_last)));
        };
        return {channel(_mm_setr_epi8(0, -1, 3, -1, 6, -1, 9, -1, 12, -1, 15, -1, -1, -1, -1, -1),
                        _mm_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 10, -1, 13, -1)),
                channel(_mm_setr_epi8(1, -1, 4, -1, 7, -1, 10, -1, 13, -1, -1, -1, -1, -1, -1, -1),
                        _mm_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 8, -1, 11, -1, 14, -1)),
                channel(_mm_setr_epi8(2, -1, 5, -1, 8, -1, 11, -1, 14, -1, -1, -1, -1, -1, -1, -1),
                        _mm_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 9, -1, 12, -1, 15, -1))};
    }
    void write(uint8_t* rgb) const {
        const __m256i both = _mm256_or_si256(r, _mm256_slli_epi16(g, 8));
        const auto bytes = [&](__m128i of_both, __m128i of_b) {
            return _mm256_or_si256(_mm256_shuffle_epi8(both, _mm256_broadcastsi128_si256(of_both)),
                                   _mm256_shuffle_epi8(b, _mm256_broadcastsi128_si256(of_b)));
        };
        const __m256i first = bytes(_mm_setr_epi8(0, 1, -1, 2, 3, -1, 4, 5, -1, 6, 7, -1, 8, 9, -1, 10),
                                    _mm_setr_epi8(-1, -1, 0, -1, -1, 2, -1, -1, 4, -1, -1, 6, -1, -1, 8, -1));
        const __m256i last =
            bytes(_mm_setr_epi8(11, -1, 12, 13, -1, 14, 15, -1, -1, -1, -1, -1, -1, -1, -1, -1),
                  _mm_setr_epi8(-1, 10, -1, -1, 12, -1, -1, 14, -1, -1, -1, -1, -1, -1, -1, -1));
        store(rgb, _mm256_castsi256_si128(first));
        _mm_storel_epi64(reinterpret_cast<__m128i*>(rgb + 16), _mm256_castsi256_si128(last));
        store(rgb + 24, _mm256_extracti128_si256(first, 1));
        _mm_storel_epi64(reinterpret_cast<__m128i*>(rgb + 40), _mm256_extracti128_si256(last, 1));
    }
};

// Hue, in 180 parts and maybe negative, and saturation of eight pixels, as 32-bit lanes, where `range` is at
// least 1. All numbers are integers below 2^24, but `each`; it is so exact that both quotients are rounded to
// those of OpenCV's tables.
inline void hue_and_saturation(__m256i value, __m256i range, __m256i sixths, __m256i& h, __m256i& s) {
    const auto all = [](float x) { return _mm256_set1_ps(x); };
    const __m256 v = _mm256_cvtepi32_ps(value), d = _mm256_cvtepi32_ps(range);
    const __m256 each = _mm256_div_ps(all(1), _mm256_mul_ps(v, d));
    const auto part = [&](__m256 of, __m256 by, float times) {
        const __m256 quotient = _mm256_mul_ps(_mm256_mul_ps(by, all(times * (1 << kHsvBits))), each);
        const __m256 rounded = _mm256_sub_ps(_mm256_add_ps(quotient, all(0x1.8p23F)), all(0x1.8p23F));
        const __m256 sum = _mm256_add_ps(_mm256_mul_ps(of, rounded), all(1 << (kHsvBits - 1)));
        return _mm256_srai_epi32(_mm256_cvttps_epi32(sum), kHsvBits);
    };
    h = part(_mm256_cvtepi32_ps(sixths), v, 30);
    s = part(d, d, 255);
}

void gain_hsv(uint8_t* rgb, size_t count, const HsvGains& gains) noexcept {
    const auto all = [](int x) { return _mm256_set1_epi16(static_cast<int16_t>(x)); };
    const __m256i zero = _mm256_setzero_si256(), most_byte = all(255);
    for (; count >= 16; count -= 16, rgb += 48) {
        SixteenPixels of = SixteenPixels::from(rgb);
        const auto [r, g, b] = of;
        const __m256i v = _mm256_max_epi16(r, _mm256_max_epi16(g, b));
        const __m256i range = _mm256_sub_epi16(v, _mm256_min_epi16(r, _mm256_min_epi16(g, b)));
        const __m256i twice = _mm256_add_epi16(range, range);
        const __m256i of_blue = _mm256_add_epi16(_mm256_sub_epi16(r, g), _mm256_add_epi16(twice, twice));
        const __m256i of_green = _mm256_add_epi16(_mm256_sub_epi16(b, r), twice);
        const __m256i sixths =
            _mm256_blendv_epi8(_mm256_blendv_epi8(of_blue, of_green, _mm256_cmpeq_epi16(v, g)),
                               _mm256_sub_epi16(g, b), _mm256_cmpeq_epi16(v, r));
        const __m256i value = _mm256_max_epi16(v, all(1)), divisor = _mm256_max_epi16(range, all(1));
        const __m256i sign = _mm256_srai_epi16(sixths, 15);
        __m256i h, s, more_h, more_s;
        hue_and_saturation(_mm256_unpacklo_epi16(value, zero), _mm256_unpacklo_epi16(divisor, zero),
                           _mm256_unpacklo_epi16(sixths, sign), h, s);
        hue_and_saturation(_mm256_unpackhi_epi16(value, zero), _mm256_unpackhi_epi16(divisor, zero),
                           _mm256_unpackhi_epi16(sixths, sign), more_h, more_s);
        h = _mm256_packs_epi32(h, more_h);
        s = _mm256_and_si256(_mm256_packs_epi32(s, more_s), _mm256_cmpgt_epi16(range, zero));
        h = _mm256_add_epi16(h, _mm256_and_si256(_mm256_srai_epi16(h, 15), all(180)));
        h = _mm256_add_epi16(h, all(gains.turn));
        h = _mm256_min_epu16(h, _mm256_sub_epi16(h, all(180)));
        const auto times = [&](__m256i x, int factor) {
            return _mm256_min_epi16(_mm256_mulhi_epu16(_mm256_slli_epi16(x, 2), all(factor)), most_byte);
        };
        const __m256i twice_v = _mm256_slli_epi16(times(v, gains.value), 1),
                      eight_s = _mm256_slli_epi16(times(s, gains.saturation), 3);
        const auto channel = [&](__m256i away) {
            away = _mm256_max_epi16(_mm256_min_epi16(away, all(30)), zero);
            const __m256i rest = _mm256_sub_epi16(all(kHsvMost), _mm256_mullo_epi16(eight_s, away));
            return _mm256_mulhi_epu16(twice_v, _mm256_mulhi_epu16(rest, all(kHsvHalf)));
        };
        const auto far = [&](int from) { return _mm256_abs_epi16(_mm256_sub_epi16(h, all(from))); };
        of = {channel(_mm256_sub_epi16(all(60), far(90))), channel(_mm256_sub_epi16(far(60), all(30))),
              channel(_mm256_sub_epi16(far(120), all(30)))};
        of.write(rgb);
    }
    scalar_gain_hsv(rgb, count, gains);
}

// Four pixels at a time: of each, both taps of every channel side by side.
template <int C>
void linear_across_of(const uint8_t* row, const HorizontalPass& pass, int16_t* out) {
    static constexpr Lanes<C> lanes;
    const __m128i taps = load(lanes.taps01), packed = load(lanes.packed_words);
    int x = 0;
    for (; x + 4 <= pass.width; x += 4, out += 4 * C) {
        const int32_t *const start = pass.start + x, *const weight = pass.weight + 2 * x;
        const __m128i weights = _mm_packs_epi32(load(weight), load(weight + 4));
        const auto pixel = [&](int i, __m128i both) {
            const __m128i sum = _mm_madd_epi16(_mm_shuffle_epi8(load(row + start[i]), taps), both);
            return _mm_srli_epi32(sum, kLinearBits - kBetweenBits);
        };
        const __m128i first = _mm_packs_epi32(pixel(0, _mm_shuffle_epi32(weights, 0x00)),
                                              pixel(1, _mm_shuffle_epi32(weights, 0x55))),
                      second = _mm_packs_epi32(pixel(2, _mm_shuffle_epi32(weights, 0xaa)),
                                               pixel(3, _mm_shuffle_epi32(weights, 0xff)));
        store(out, _mm_shuffle_epi8(first, packed));
        store(out + 2 * C, _mm_shuffle_epi8(second, packed));
    }
    HorizontalPass rest = pass;
    rest.width -= x;
    rest.start += x;
    rest.weight += 2 * x;
    scalar_linear_across(row, rest, out);
}

void linear_across(const uint8_t* row, const HorizontalPass& pass, int16_t* out) noexcept {
    switch (pass.channels) {
        case 3: return linear_across_of<3>(row, pass, out);
        case 4: return linear_across_of<4>(row, pass, out);
        default: return scalar_linear_across(row, pass, out);
    }
}

void mix_rows(const int16_t* above, const int16_t* below, int fraction, size_t count, uint8_t* out) noexcept {
    const __m256i weights = _mm256_set1_epi32(((1 << kPlaceBits) - fraction) | fraction << 16),
                  half = _mm256_set1_epi32(1 << (2 * kPlaceBits - 1));
    const auto sixteen = [&](size_t at) {
        const __m256i a = load_wide(above + at), b = load_wide(below + at);
        const auto mixed = [&](__m256i pairs) {
            return _mm256_srli_epi32(_mm256_add_epi32(_mm256_madd_epi16(pairs, weights), half),
                                     2 * kPlaceBits);
        };
        return _mm256_packs_epi32(mixed(_mm256_unpacklo_epi16(a, b)), mixed(_mm256_unpackhi_epi16(a, b)));
    };
    size_t i = 0;
    for (; i + 32 <= count; i += 32)
        store_wide(out + i, _mm256_permute4x64_epi64(_mm256_packus_epi16(sixteen(i), sixteen(i + 16)), 0xd8));
    scalar_mix_rows(above + i, below + i, fraction, count - i, out + i);
}

}  // namespace
}  // namespace standpipe
