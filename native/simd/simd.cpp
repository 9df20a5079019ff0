#include "simd/simd.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "simd/cpu.h"

namespace standpipe {

SplitWeights split_weights(int32_t first, int32_t second) noexcept {
    constexpr int32_t half = 1 << (kSplitBits - 1);
    const auto hi = [](int32_t w) { return (w + half) >> kSplitBits; };
    const auto lo = [hi](int32_t w) { return w - (hi(w) << kSplitBits); };
    const auto both = [](int32_t a, int32_t b) {
        return static_cast<int32_t>(static_cast<uint32_t>(b) << 16 | (static_cast<uint32_t>(a) & 0xffff));
    };
    return {both(hi(first), hi(second)), both(lo(first), lo(second))};
}

void HorizontalPlan::prepare(const AxisWeights& axis, int origin, int columns, int per_pixel, bool mirror,
                             bool splits) {
    channels = per_pixel;
    width = static_cast<int>(axis.start.size());
    taps = axis.taps;
    const auto stride = static_cast<size_t>(taps);
    start.assign(static_cast<size_t>(groups() * kGroup), 0);
    refit(weight, static_cast<size_t>(width) * stride);
    for (int i = 0; i < width; ++i) {
        const auto from = static_cast<size_t>(mirror ? width - 1 - i : i);
        // Outputs at the right edge have fewer taps: their padding goes in front, so that no tap lies
        // outside of a row that has as many pixels.
        const int first = axis.start[from] - origin, outside = std::clamp(first + taps - columns, 0, first);
        start[static_cast<size_t>(i)] = (first - outside) * channels;
        int32_t* to = &weight[static_cast<size_t>(i) * stride];
        std::fill_n(to, outside, 0);
        std::copy_n(&axis.weight[from * stride], taps - outside, to + outside);
    }
    if (splits) fill_split();
}

void HorizontalPlan::fill_split() {
    refit(split, static_cast<size_t>(groups() * pairs() * kGroup * 2));
    const int pairs = this->pairs(), apart = channels == 1 ? kGroup : 1;  // both parts of a pair
    const auto put = [&](int output, int pair, int32_t* to) {
        const int t = 2 * pair;
        const int32_t* const w = weight.data() + static_cast<ptrdiff_t>(output) * taps;
        const bool none = output >= width || t >= taps;
        const SplitWeights both = none ? SplitWeights{} : split_weights(w[t], t + 1 < taps ? w[t + 1] : 0);
        to[0] = both.hi;
        to[apart] = both.lo;
    };
    int32_t* to = split.data();
    for (int g = 0; g < groups(); ++g) {
        const int first = g * kGroup;
        if (channels == 1) {
            for (int i = first; i < first + kGroup; ++i)
                for (int p = 0; p < pairs; p += kGroup, to += 2 * kGroup)
                    for (int k = 0; k < kGroup; ++k) put(i, p + k, to + k);
            continue;
        }
        for (int p = 0; p < pairs; ++p)
            for (int i = first; i < first + kGroup; ++i, to += 2) put(i, p, to);
    }
}

const Kernels* kernels_named(const char* name) noexcept {
    if (!std::strcmp(name, "scalar")) return &kScalarKernels;
#if defined(__x86_64__)
    static const Cpu cpu = this_cpu();
    if (!std::strcmp(name, "avx2")) return cpu.avx2 ? &kAvx2Kernels : nullptr;
    if (!std::strcmp(name, "avx512")) return cpu.avx512 ? &kAvx512Kernels : nullptr;
#elif defined(__aarch64__)
    if (!std::strcmp(name, "neon")) return &kNeonKernels;
#endif
    return nullptr;
}

const Kernels& best_kernels() noexcept {
    for (const char* name : {"avx512", "avx2", "neon"})
        if (const Kernels* kernels = kernels_named(name)) return *kernels;
    return kScalarKernels;
}

}  // namespace standpipe
