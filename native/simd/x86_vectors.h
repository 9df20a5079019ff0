// Loads, stores and shuffles of the x86-64 kernels: a part of x86.h.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace standpipe {
namespace {

inline __m128i load(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline void store(void* p, __m128i x) { _mm_storeu_si128(static_cast<__m128i*>(p), x); }
inline __m256i load_wide(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline void store_wide(void* p, __m256i x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }

// Four copies of *p, which takes no part of the shuffle unit as other ways of spreading it do.
inline __m128i spread(const int32_t* p) {
    float bits;
    std::memcpy(&bits, p, sizeof bits);
    return _mm_castps_si128(_mm_set1_ps(bits));
}

// Places of bytes in 16 bytes of pixels of C channels, at least four; -1 makes zero. Taps 0 and 1 as 16-bit
// lanes, for three channels R0 R1 G0 G1 B0 B1 0 0; likewise taps 2 and 3.
template <int C>
struct Lanes {
    alignas(16) int8_t taps01[16] = {}, taps23[16] = {};
    alignas(16) int8_t packed[16] = {};        // four pixels of 32-bit lanes as bytes, without gaps
    alignas(16) int8_t packed_words[16] = {};  // two pixels of four 16-bit lanes each, without gaps

    constexpr Lanes() {
        for (int i = 0; i < 16; ++i) {
            const bool used = i / 4 < C && i % 2 == 0;
            taps01[i] = static_cast<int8_t>(used ? i / 4 + i % 4 / 2 * C : -1);
            taps23[i] = static_cast<int8_t>(used ? taps01[i] + 2 * C : -1);
            packed[i] = static_cast<int8_t>(i < 4 * C ? i / C * 4 + i % C : -1);
            packed_words[i] = static_cast<int8_t>(i < 4 * C ? 2 * (i / 2 / C * 4 + i / 2 % C) + i % 2 : -1);
        }
    }
};

}  // namespace
}  // namespace standpipe
