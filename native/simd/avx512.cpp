#include "simd/x86.h"

namespace standpipe {
namespace {

// AVX-512's neural network instructions do both at once, on 32 registers instead of 16.
struct MultiplyAdd {
    static __m128i add(__m128i sum, __m128i x, __m128i weights) { return _mm_dpwssd_epi32(sum, x, weights); }
};

}  // namespace

constinit const Kernels kAvx512Kernels = kernels_of<MultiplyAdd>("avx512");

}  // namespace standpipe
