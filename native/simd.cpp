#include "simd.h"

#include <algorithm>
#include <cstring>

namespace penstock {

#if defined(__x86_64__)
extern const Kernels kAvx2Kernels, kAvx512Kernels;
#elif defined(__aarch64__)
extern const Kernels kNeonKernels;
#endif

void HorizontalPlan::prepare(const AxisWeights& axis, int origin, int columns, bool mirror, bool with_split) {
    width = static_cast<int>(axis.start.size());
    taps = axis.taps;
    const auto stride = static_cast<size_t>(taps);
    start.assign(static_cast<size_t>(groups()) * 4, 0);
    weight.resize(static_cast<size_t>(width) * stride);
    for (int i = 0; i < width; ++i) {
        const auto from = static_cast<size_t>(mirror ? width - 1 - i : i);
        // Outputs at the right edge have fewer taps: their padding goes in front, so that no tap lies outside.
        const int first = axis.start[from] - origin, outside = std::max(first + taps - columns, 0);
        start[static_cast<size_t>(i)] = (first - outside) * 3;
        int32_t* to = &weight[static_cast<size_t>(i) * stride];
        std::fill_n(to, outside, 0);
        std::copy_n(&axis.weight[from * stride], taps - outside, to + outside);
    }
    if (!with_split) return;

    const auto pair_count = static_cast<size_t>(pairs());
    split.assign(static_cast<size_t>(groups()) * pair_count * 64, 0);
    for (int i = 0; i < width; ++i) {
        const int32_t* w = &weight[static_cast<size_t>(i) * stride];
        for (size_t p = 0; p < pair_count; ++p) {
            const int32_t a = w[2 * p], b = 2 * p + 1 < stride ? w[2 * p + 1] : 0;
            int16_t* hi = &split[((static_cast<size_t>(i) / 4) * pair_count + p) * 64 + (static_cast<size_t>(i) % 4) * 8];
            int16_t* lo = hi + 32;
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
