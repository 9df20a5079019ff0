#include "simd/kernels.h"

namespace standpipe {
namespace {

constexpr int32_t kRound = 1 << (kWeightBits - 1);

uint8_t clip_to_byte(int32_t sum) noexcept {
    const int32_t value = sum >> kWeightBits;
    return static_cast<uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
}

void horizontal_row(const uint8_t* row, const HorizontalPass& pass, uint8_t* out) noexcept {
    const int32_t* weight = pass.weight;
    for (int x = 0; x < pass.width; ++x, weight += pass.taps, out += 3) {
        const uint8_t* pixel = row + pass.start[x];
        int32_t r = kRound, g = kRound, b = kRound;
        for (int t = 0; t < pass.taps; ++t, pixel += 3) {
            r += pixel[0] * weight[t];
            g += pixel[1] * weight[t];
            b += pixel[2] * weight[t];
        }
        out[0] = clip_to_byte(r);
        out[1] = clip_to_byte(g);
        out[2] = clip_to_byte(b);
    }
}

void horizontal(const uint8_t* const* rows, const HorizontalPass& pass, uint8_t* const* out) noexcept {
    for (int r = 0; r < 2; ++r) horizontal_row(rows[r], pass, out[r]);
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

void scalar_look_up_f32(const uint8_t* bytes, int width, const float* table, float* out) noexcept {
    look_up(bytes, width, table, out);
}

void scalar_look_up_f16(const uint8_t* bytes, int width, const uint16_t* table, uint16_t* out) noexcept {
    look_up(bytes, width, table, out);
}

constinit const Kernels kScalarKernels{
    "scalar", false, horizontal, vertical, separate, scalar_look_up_f32, scalar_look_up_f16};

}  // namespace standpipe
