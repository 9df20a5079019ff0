#include "simd/x86.h"

namespace standpipe {
namespace {

struct MultiplyThenAdd {
    static __m128i add(__m128i sum, __m128i x, __m128i weights) {
        return _mm_add_epi32(sum, _mm_madd_epi16(x, weights));
    }
};

}  // namespace

constinit const Kernels kAvx2Kernels = kernels_of<MultiplyThenAdd>("avx2");

}  // namespace standpipe
