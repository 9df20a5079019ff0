// Functions that use only additions, multiplications, both at once (fma), divisions and square roots, so
// every machine rounds them the same way. The last bit of a C library's result may depend on its version and
// the processor.
#pragma once

#include <cmath>
#include <cstdint>

#include "system/keys.h"

namespace standpipe {

// Error below 4e-16 relative, for arguments as small as ratios and scales have.
inline double portable_log(double x) noexcept {
    int exponent = 0;
    double m = std::frexp(x, &exponent);  // x = m * 2^exponent, m in [0.5, 1): exact
    if (m < 0.70710678118654752440) {
        m *= 2;
        --exponent;
    }
    const double t = (m - 1) / (m + 1), t2 = t * t;
    double sum = 0.0;
    for (int k = 23; k >= 1; k -= 2) sum = sum * t2 + 1.0 / k;
    return exponent * 0.69314718055994530942 + 2 * t * sum;
}

inline double portable_exp(double x) noexcept {
    const double halvings = std::nearbyint(x * 1.44269504088896340736);
    const double r = x - halvings * 0.69314718055994530942;
    double sum = 1.0;
    for (int k = 18; k >= 1; --k) sum = 1.0 + r * sum / k;
    return std::ldexp(sum, static_cast<int>(halvings));
}

struct SineCosine {
    double sine, cosine;
};

// Returns the sine and cosine of an angle in radians of at most some thousand turns. The sums end with the
// largest term and the error of the others, so nearly every result is the double next to the true value, as a
// C library's is.
inline SineCosine portable_sine_cosine(double angle) noexcept {
    const double quarters = std::nearbyint(angle * 0.63661977236758134308);
    const double high = std::fma(-quarters, 1.57079632679489655800, angle);
    const double low = quarters * 6.12323399573676603587e-17;
    const double r = high - low, rest = (high - r) - low;  // the angle left is r + rest
    const double r2 = r * r, half = r2 / 2, most = 1 - half;
    const double lost = r * rest + std::fma(r, r, -r2) / 2;  // of half
    double sine = 1.0, cosine = 1.0;
    for (int k = 20; k >= 4; k -= 2) {
        sine = 1.0 - r2 * sine / (k * (k + 1));
        cosine = 1.0 - r2 * cosine / ((k + 2) * (k + 1));
    }
    sine = r + (rest - r * r2 * sine / 6);
    cosine = most + ((1 - most) - half - lost + r2 * r2 * cosine / 24);
    switch (static_cast<int64_t>(quarters) & 3) {
        case 0: return {sine, cosine};
        case 1: return {cosine, -sine};
        case 2: return {-sine, -cosine};
        default: return {-cosine, sine};
    }
}

// Python's round(x, 15), for |x| below 4: the multiple of 1e-15 next to the exact x, the even one of two. The
// product alone is rounded already, and may be a half where x isn't one.
inline double rounded_to_15_digits(double x) noexcept {
    const double scaled = x * 1e15, lost = std::fma(x, 1e15, -scaled);
    double nearest = std::nearbyint(scaled);
    const double rest = scaled - nearest;
    if (std::fabs(rest) == 0.5 && rest * lost > 0) nearest += 2 * rest;
    return nearest / 1e15;  // both are exact, so this is the double next to the decimal number
}

// A standard normal number from one word, by the inverse of its distribution: algorithm AS 241, PPND7
// (Wichura, Applied Statistics 37, 1988), with a relative error of about 1e-7. The word's upper 53 bits and a
// half are the probability, so results are between -8.3 and 8.3.
inline double portable_normal(uint64_t word) noexcept {
    const double p = (static_cast<double>(word >> 11) + 0.5) * 0x1.0p-53, q = p - 0.5;
    if (std::fabs(q) <= 0.425) {
        const double r = 0.180625 - q * q;
        return q * (((59.109374720 * r + 159.29113202) * r + 50.434271938) * r + 3.3871327179) /
               (((67.187563600 * r + 78.757757664) * r + 17.895169469) * r + 1.0);
    }
    // Near 1, p has lost bits that its distance from 1 still has.
    const double tail = q < 0 ? p : (static_cast<double>((~word) >> 11) + 0.5) * 0x1.0p-53;
    double r = std::sqrt(-portable_log(tail)), value = 0;
    if (r <= 5) {
        r -= 1.6;
        value = (((0.17023821103 * r + 1.3067284816) * r + 2.7568153900) * r + 1.4234372777) /
                ((0.12021132975 * r + 0.73700164250) * r + 1.0);
    } else {
        r -= 5;
        value = (((0.017337203997 * r + 0.42868294337) * r + 3.0812263860) * r + 6.6579051150) /
                ((0.012258202635 * r + 0.24197894225) * r + 1.0);
    }
    return q < 0 ? -value : value;
}

inline double drawn_normal(Draws& draws) noexcept { return portable_normal(draws.word()); }

}  // namespace standpipe
