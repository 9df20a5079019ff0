#include "simd.h"

#include <algorithm>
#include <cstring>

namespace penstock {

#if defined(__x86_64__)
extern const Kernels kAvx2Kernels, kAvx512Kernels;
#elif defined(__aarch64__)
extern const Kernels kNeonKernels;
#endif

void HorizontalPlan::prepare(const AxisWeights& axis, int origin, int columns, bool mirror,
                             const int8_t* order) {
    width = static_cast<int>(axis.start.size());
    taps = axis.taps;
    const auto stride = static_cast<size_t>(taps);
    start.resize(static_cast<size_t>(width));
    weight.resize(static_cast<size_t>(width) * stride);
    for (int i = 0; i < width; ++i) {
        const auto from = static_cast<size_t>(mirror ? width - 1 - i : i);
        // Outputs at the right edge have fewer taps: their padding goes in front, so that no tap lies
        // outside.
        const int first = axis.start[from] - origin, outside = std::max(first + taps - columns, 0);
        start[static_cast<size_t>(i)] = (first - outside) * 3;
        int32_t* to = &weight[static_cast<size_t>(i) * stride];
        std::fill_n(to, outside, 0);
        std::copy_n(&axis.weight[from * stride], taps - outside, to + outside);
    }
    if (order) split_weights(order);
}

void HorizontalPlan::split_weights(const int8_t* order) {
    const auto pair_count = static_cast<size_t>(pairs()), stride = static_cast<size_t>(taps);
    const auto padded = static_cast<size_t>(groups()) * kGroup;
    constexpr size_t part = kGroup * 8;  // lanes of one group, pair and half of the weights
    group_start.assign(padded, 0);
    split.resize(padded / kGroup * pair_count * 2 * part);
    for (size_t place = 0; place < padded; ++place) {
        const size_t output = place / kGroup * kGroup + static_cast<size_t>(order[place % kGroup]);
        const bool exists = output < static_cast<size_t>(width);
        if (exists) group_start[place] = start[output];
        const int32_t* w = exists ? &weight[output * stride] : nullptr;
        for (size_t p = 0; p < pair_count; ++p) {
            const int32_t a = w ? w[2 * p] : 0, b = w && 2 * p + 1 < stride ? w[2 * p + 1] : 0;
            int16_t* hi = &split[(place / kGroup * pair_count + p) * 2 * part + place % kGroup * 8];
            int16_t* lo = hi + part;
            for (int lane = 0; lane < 8; lane += 2) {
                hi[lane] = static_cast<int16_t>(a >> kSplitBits);
                hi[lane + 1] = static_cast<int16_t>(b >> kSplitBits);
                lo[lane] = static_cast<int16_t>(a & kSplitMask);
                lo[lane + 1] = static_cast<int16_t>(b & kSplitMask);
            }
        }
    }
}

const Kernels* kernels_named(const char* name) noexcept {
    if (!std::strcmp(name, "scalar")) return &kScalarKernels;
#if defined(__x86_64__)
    if (!std::strcmp(name, "avx2")) return __builtin_cpu_supports("avx2") ? &kAvx2Kernels : nullptr;
    if (!std::strcmp(name, "avx512")) {
        const bool runs = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
        return runs ? &kAvx512Kernels : nullptr;
    }
#elif defined(__aarch64__)
    if (!std::strcmp(name, "neon")) return &kNeonKernels;
#endif
    return nullptr;
}

const Kernels& best_kernels() noexcept {
#if defined(__x86_64__)
    const bool wide_is_quick = __builtin_cpu_supports("avx512vbmi");
#else
    const bool wide_is_quick = false;
#endif
    for (const char* name : {wide_is_quick ? "avx512" : "avx2", "avx2", "neon"})
        if (const Kernels* kernels = kernels_named(name)) return *kernels;
    return kScalarKernels;
}

}  // namespace penstock
