#include "simd.h"

namespace standpipe {
namespace {

constexpr int32_t kRound = 1 << (kWeightBits - 1);

void horizontal_row(const uint8_t* row, const HorizontalPlan& plan, uint8_t* out) noexcept {
    const int32_t* weight = plan.weight.data();
    for (int x = 0; x < plan.width; ++x, weight += plan.taps, out += 3) {
        const uint8_t* pixel = row + plan.start[static_cast<size_t>(x)];
        int32_t r = kRound, g = kRound, b = kRound;
        for (int t = 0; t < plan.taps; ++t, pixel += 3) {
            r += pixel[0] * weight[t];
            g += pixel[1] * weight[t];
            b += pixel[2] * weight[t];
        }
        out[0] = clip_to_byte(r);
        out[1] = clip_to_byte(g);
        out[2] = clip_to_byte(b);
    }
}

void vertical(const uint8_t* const* rows, const int32_t* weight, int taps, size_t bytes,
              uint8_t* out) noexcept {
    for (size_t i = 0; i < bytes; ++i) {
        int32_t sum = kRound;
        for (int t = 0; t < taps; ++t) sum += rows[t][i] * weight[t];
        out[i] = clip_to_byte(sum);
    }
}

void separate(const uint8_t* rgb, int width, uint8_t* const* planes) noexcept {
    for (int x = 0; x < width; ++x, rgb += 3)
        for (int c = 0; c < 3; ++c) planes[c][x] = rgb[c];
}

template <typename Value>
void look_up(const uint8_t* bytes, int width, const Value* table, Value* out) noexcept {
    for (int x = 0; x < width; ++x) out[x] = table[bytes[x]];
}

}  // namespace

constinit const Kernels kScalarKernels{"scalar", false,          one_by_one<horizontal_row>, vertical,
                                       separate, look_up<float>, look_up<uint16_t>};

}  // namespace standpipe
