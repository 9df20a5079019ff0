#include <algorithm>
#include <cstdlib>

#include "simd/channels.h"
#include "simd/kernels.h"

namespace standpipe {
namespace {

constexpr int32_t kRound = 1 << (kWeightBits - 1);

uint8_t clip_to_byte(int32_t sum) noexcept {
    const int32_t value = sum >> kWeightBits;
    return static_cast<uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
}

template <size_t channels>
void horizontal_row(const uint8_t* row, const HorizontalPass& pass, uint8_t* out) noexcept {
    const int32_t* weight = pass.weight;
    for (int x = 0; x < pass.width; ++x, weight += pass.taps, out += channels) {
        const uint8_t* pixel = row + pass.start[x];
        int32_t sums[channels];
        for (int32_t& sum : sums) sum = kRound;
        for (int t = 0; t < pass.taps; ++t, pixel += channels)
            for (size_t c = 0; c < channels; ++c) sums[c] += pixel[c] * weight[t];
        for (size_t c = 0; c < channels; ++c) out[c] = clip_to_byte(sums[c]);
    }
}

void horizontal(const uint8_t* const* rows, const HorizontalPass& pass, uint8_t* const* out) noexcept {
    with_channels(pass.channels, [&](auto channels) {
        for (int r = 0; r < 2; ++r) horizontal_row<channels>(rows[r], pass, out[r]);
    });
}

void vertical(const uint8_t* const* rows, const int32_t* weight, int taps, size_t bytes,
              uint8_t* out) noexcept {
    for (size_t i = 0; i < bytes; ++i) {
        int32_t sum = kRound;
        for (int t = 0; t < taps; ++t) sum += rows[t][i] * weight[t];
        out[i] = clip_to_byte(sum);
    }
}

template <typename Value>
void look_up(const uint8_t* bytes, int width, const Value* table, Value* out) noexcept {
    for (int x = 0; x < width; ++x) out[x] = table[bytes[x]];
}

constexpr size_t kBlock = 512;  // sums of a blur that are made together

// Adds `weight` times each value. Compilers vectorise it, since nothing overlaps `sums`; inlined, GCC would
// join two taps first and then vectorise neither.
[[gnu::noinline]] void add(uint32_t* __restrict sums, const int16_t* __restrict values, size_t count,
                           int16_t weight) noexcept {
    for (size_t i = 0; i < count; ++i) sums[i] += static_cast<uint32_t>(values[i] * weight);
}

// out[i] = finish(first + the sum).
template <typename Out, typename Finish>
void blur(const int16_t* const* rows, const int16_t* weight, int taps, size_t count, uint32_t first,
          Finish finish, Out* out) noexcept {
    for (size_t begin = 0; begin < count; begin += kBlock) {
        const size_t size = count - begin < kBlock ? count - begin : kBlock;
        uint32_t sums[kBlock];
        for (size_t i = 0; i < size; ++i) sums[i] = first;
        for (int t = 0; t < taps; ++t) add(sums, rows[t] + begin, size, weight[t]);
        for (size_t i = 0; i < size; ++i) out[begin + i] = finish(sums[i]);
    }
}

template <size_t channels>
void interpolate_pixel(const WarpSource& from, int32_t x, int32_t y, uint8_t* out) noexcept {
    constexpr int kOne = 1 << kPlaceBits;
    const int left = x >> kPlaceBits, top = y >> kPlaceBits;
    const uint8_t* corners[4] = {from.fill, from.fill, from.fill, from.fill};
    if (left >= -1 && left < from.width && top >= -1 && top < from.height) {
        for (int i = 0; i < 4; ++i) {
            const int column = left + i % 2, row = top + i / 2;
            if (column < 0 || column >= from.width || row < 0 || row >= from.height) continue;
            const auto place =
                static_cast<size_t>(row) * static_cast<size_t>(from.width) + static_cast<size_t>(column);
            corners[i] = from.pixels + channels * place;
        }
    }
    const int right = x & (kOne - 1), low = y & (kOne - 1);
    for (size_t c = 0; c < channels; ++c) {
        const int above = corners[0][c] * (kOne - right) + corners[1][c] * right,
                  below = corners[2][c] * (kOne - right) + corners[3][c] * right;
        out[c] =
            static_cast<uint8_t>((above * (kOne - low) + below * low + kOne * kOne / 2) >> (2 * kPlaceBits));
    }
}

}  // namespace

void scalar_interpolate(const WarpSource& from, const int32_t* x, const int32_t* y, int count,
                        uint8_t* out) noexcept {
    with_channels(from.channels, [&](auto channels) {
        for (int i = 0; i < count; ++i, out += channels) interpolate_pixel<channels>(from, x[i], y[i], out);
    });
}

void scalar_divide_places(const PlaceRow& row, int first, int count, int32_t* x, int32_t* y) noexcept {
    const auto limited = [&](double value) {
        value = value > -row.most ? value : -row.most;
        value = value < row.most ? value : row.most;
        return static_cast<int32_t>((value + 0x1.8p52) - 0x1.8p52);
    };
    for (int i = 0; i < count; ++i) {
        const double at = first + i, scale = row.one / (row.depth + row.step_depth * at);
        x[i] = limited((row.x + row.step_x * at) * scale) - row.left;
        y[i] = limited((row.y + row.step_y * at) * scale) - row.top;
    }
}

void scalar_gain_hsv(uint8_t* rgb, size_t count, const HsvGains& gains) noexcept {
    constexpr int kHalf = 1 << (kHsvBits - 1);
    // Neither quotient is ever half way between two integers.
    const auto quotient = [](int of, int by) { return (2 * (of << kHsvBits) + by) / (2 * by); };
    for (; count > 0; --count, rgb += 3) {
        const int r = rgb[0], g = rgb[1], b = rgb[2];
        int v = std::max({r, g, b});
        const int range = v - std::min({r, g, b});
        int s = (range * quotient(255, std::max(v, 1)) + kHalf) >> kHsvBits;
        const int sixths = v == r ? g - b : v == g ? b - r + 2 * range : r - g + 4 * range;
        int h = (sixths * quotient(30, std::max(range, 1)) + kHalf) >> kHsvBits;
        h = (h + (h < 0 ? 180 : 0) + gains.turn) % 180;
        s = std::min(s * gains.saturation >> 14, 255);
        v = std::min(v * gains.value >> 14, 255);
        // `away`: 0 where the channel has the value itself, 30 where it has the least of the three.
        const auto channel = [&](int away) {
            away = std::clamp(away, 0, 30);
            const auto rest = static_cast<uint32_t>(kHsvMost - 8 * s * away);
            return static_cast<uint8_t>(static_cast<uint32_t>(v) * (rest * kHsvHalf >> 16) >> 15);
        };
        rgb[0] = channel(60 - std::abs(h - 90));
        rgb[1] = channel(std::abs(h - 60) - 30);
        rgb[2] = channel(std::abs(h - 120) - 30);
    }
}

void scalar_linear_across(const uint8_t* row, const HorizontalPass& pass, int16_t* out) noexcept {
    with_channels(pass.channels, [&](auto channels) {
        const int32_t* weight = pass.weight;
        for (int x = 0; x < pass.width; ++x, weight += 2, out += channels) {
            const uint8_t* const pixel = row + pass.start[x];
            for (size_t c = 0; c < channels; ++c)
                out[c] = static_cast<int16_t>((pixel[c] * weight[0] + pixel[c + channels] * weight[1]) >>
                                              (kLinearBits - kBetweenBits));
        }
    });
}

// OpenCV truncates each product by itself.
void scalar_mix_rows(const int16_t* __restrict above, const int16_t* __restrict below, int fraction,
                     size_t count, uint8_t* __restrict out) noexcept {
    constexpr int kOne = 1 << kPlaceBits;
    for (size_t i = 0; i < count; ++i)
        out[i] = static_cast<uint8_t>(
            (above[i] * (kOne - fraction) + below[i] * fraction + kOne * kOne / 2) >> (2 * kPlaceBits));
}

void linear_down(const int16_t* __restrict above, const int16_t* __restrict below, int32_t weight_above,
                 int32_t weight_below, size_t count, uint8_t* __restrict out) noexcept {
    const auto a = static_cast<int16_t>(weight_above), b = static_cast<int16_t>(weight_below);
    for (size_t i = 0; i < count; ++i) {
        const auto quarters = static_cast<int16_t>((above[i] * a >> 16) + (below[i] * b >> 16));
        out[i] = static_cast<uint8_t>((quarters + 2) >> 2);
    }
}

void scalar_separate(const uint8_t* pixels, int width, int channels, uint8_t* const* planes) noexcept {
    with_channels(channels, [&](auto count) {
        for (int x = 0; x < width; ++x, pixels += count)
            for (size_t c = 0; c < count; ++c) planes[c][x] = pixels[c];
    });
}

void scalar_to_grey(const uint8_t* rgb, int width, uint8_t* out) noexcept {
    for (int x = 0; x < width; ++x, rgb += 3) out[x] = grey(rgb[0], rgb[1], rgb[2]);
}

void scalar_look_up_f32(const uint8_t* bytes, int width, const float* table, float* out) noexcept {
    look_up(bytes, width, table, out);
}

void scalar_look_up_f16(const uint8_t* bytes, int width, const uint16_t* table, uint16_t* out) noexcept {
    look_up(bytes, width, table, out);
}

void scalar_blur_across(const int16_t* const* rows, const int16_t* weight, int taps, size_t count,
                        int16_t* out) noexcept {
    const auto finish = [](uint32_t sum) {
        return static_cast<int16_t>(static_cast<int32_t>(sum >> 8) - (1 << 15));
    };
    blur(rows, weight, taps, count, 1U << 7, finish, out);
}

void scalar_blur_down(const int16_t* const* rows, const int16_t* weight, int taps, size_t count,
                      uint8_t* out) noexcept {
    const auto finish = [](uint32_t sum) { return static_cast<uint8_t>(sum >> 24); };
    blur(rows, weight, taps, count, (1U << 31) + (1U << 23), finish, out);
}

void scalar_mirror(const uint8_t* rgb, int width, uint8_t* out) noexcept {
    for (const uint8_t* from = rgb + 3 * width; from != rgb; out += 3) {
        from -= 3;
        out[0] = from[0], out[1] = from[1], out[2] = from[2];
    }
}

constinit const Kernels kScalarKernels{"scalar",           false,
                                       horizontal,         vertical,
                                       scalar_separate,    scalar_to_grey,
                                       scalar_look_up_f32, scalar_look_up_f16,
                                       scalar_blur_across, scalar_blur_down,
                                       scalar_interpolate, scalar_divide_places,
                                       scalar_gain_hsv,    scalar_linear_across,
                                       scalar_mix_rows,    scalar_mirror};

}  // namespace standpipe
