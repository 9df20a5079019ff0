#include "simd/filters.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace standpipe {
namespace {

double box(double x) noexcept { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }

double triangle(double x) noexcept {
    x = std::fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

double hamming(double x) noexcept {
    x = std::fabs(x);
    if (x == 0.0) return 1.0;
    if (x >= 1.0) return 0.0;
    x *= std::numbers::pi;
    // The two constants are single precision in Pillow, and stay so here.
    return std::sin(x) / x * (static_cast<double>(0.54f) + static_cast<double>(0.46f) * std::cos(x));
}

// Keys' cubic convolution with a = -0.5.
double cubic(double x) noexcept {
    constexpr double a = -0.5;
    x = std::fabs(x);
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
    return 0.0;
}

double sinc(double x) noexcept {
    if (x == 0.0) return 1.0;
    x *= std::numbers::pi;
    return std::sin(x) / x;
}

double lanczos(double x) noexcept { return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0; }

int32_t to_fixed(double weight) noexcept {
    double scaled = weight * (1 << kWeightBits);
    return static_cast<int32_t>(weight < 0 ? -0.5 + scaled : 0.5 + scaled);
}

// Computes where each output's taps are; `centre` is relative to clip_low. Returns the most taps of any.
int place_taps(double reach, double scale, const AxisResize& axis, AxisWeights& out, double* centre) {
    const int size = axis.clip_high - axis.clip_low;
    int most = 1;
    for (size_t i = 0; i < out.start.size(); ++i) {
        centre[i] = axis.low - axis.clip_low + (axis.first + static_cast<int>(i) + 0.5) * scale;
        const int low = std::max(static_cast<int>(centre[i] - reach + 0.5), 0);
        const int high = std::min(static_cast<int>(centre[i] + reach + 0.5), size);
        out.start[i] = axis.clip_low + low;
        out.length[i] = high - low;
        most = std::max(most, high - low);
    }
    return most;
}

// Tap by tap over all outputs, not output by output, so that the compiler vectorises: the divisions would
// otherwise cost 1% of a row.
template <double (*kernel)(double) noexcept>
void antialiased(double support, const AxisResize& axis, AxisWeights& out) {
    const double scale = (axis.high - axis.low) / axis.virtual_size;
    const double stretch = std::max(scale, 1.0), inverse_stretch = 1.0 / stretch;
    const auto count = static_cast<size_t>(axis.count);
    out.start.resize(count);
    out.length.resize(count);
    out.scratch.resize(2 * count);
    out.taps = place_taps(support * stretch, scale, axis, out, out.scratch.data());
    const auto taps = static_cast<size_t>(out.taps);
    out.scratch.resize((2 + taps) * count);
    double *const centre = out.scratch.data(), *const sum = centre + count, *const raw = sum + count;
    std::fill_n(sum, count, 0.0);
    for (size_t t = 0; t < taps; ++t)
        for (size_t i = 0; i < count; ++i) {
            const double at = static_cast<int>(t) + (out.start[i] - axis.clip_low) - centre[i] + 0.5;
            const double weight = kernel(at * inverse_stretch);
            raw[t * count + i] = static_cast<int>(t) < out.length[i] ? weight : 0.0;
            sum[i] += raw[t * count + i];
        }
    for (size_t i = 0; i < count; ++i) sum[i] = sum[i] != 0.0 ? sum[i] : 1.0;
    out.weight.resize(count * taps);
    for (size_t t = 0; t < taps; ++t)
        for (size_t i = 0; i < count; ++i) out.weight[i * taps + t] = to_fixed(raw[t * count + i] / sum[i]);
}

// The source pixel under each output's centre. The centre is advanced by repeated addition, as Pillow does,
// so that rounding agrees with it on every size.
void nearest(const AxisResize& axis, AxisWeights& out) {
    const double scale = (axis.high - axis.low) / axis.virtual_size;
    out.taps = 1;
    out.start.resize(static_cast<size_t>(axis.count));
    out.length.assign(static_cast<size_t>(axis.count), 1);
    out.weight.assign(static_cast<size_t>(axis.count), 1 << kWeightBits);
    double at = axis.low - axis.clip_low + scale * 0.5;
    for (int i = 0; i < axis.first; ++i) at += scale;
    for (int i = 0; i < axis.count; ++i, at += scale)
        out.start[static_cast<size_t>(i)] =
            axis.clip_low + std::clamp(static_cast<int>(at), 0, axis.clip_high - axis.clip_low - 1);
}

// OpenCV's cv2.INTER_NEAREST: no half is added to an output's place.
void opencv_nearest(const AxisResize& axis, AxisWeights& out) {
    const double scale = 1 / (axis.virtual_size / (axis.high - axis.low));
    out.taps = 1;
    out.start.resize(static_cast<size_t>(axis.count));
    out.length.assign(static_cast<size_t>(axis.count), 1);
    out.weight.assign(static_cast<size_t>(axis.count), 1 << kWeightBits);
    for (int i = 0; i < axis.count; ++i)
        out.start[static_cast<size_t>(i)] =
            std::min(axis.clip_low + static_cast<int>(axis.low - axis.clip_low + (axis.first + i) * scale),
                     axis.clip_high - 1);
}

// OpenCV's cv2.INTER_LINEAR: places are rounded to floats, and each weight by itself.
void opencv_bilinear(const AxisResize& axis, AxisWeights& out) {
    const double scale = 1 / (axis.virtual_size / (axis.high - axis.low));
    const auto count = static_cast<size_t>(axis.count);
    out.taps = 2;
    out.start.resize(count);
    out.length.resize(count);
    out.weight.resize(2 * count);
    for (size_t i = 0; i < count; ++i) {
        const double centre = axis.low - axis.clip_low + (axis.first + static_cast<int>(i) + 0.5) * scale;
        const auto at = static_cast<float>(centre - 0.5), floor = std::floor(at);
        const int first = axis.clip_low + static_cast<int>(floor);
        out.start[i] = std::clamp(first, axis.clip_low, axis.clip_high - 1);
        out.length[i] = std::min(first + 2, axis.clip_high) - out.start[i];
        out.weight[2 * i] = static_cast<int32_t>(std::nearbyint((1 - (at - floor)) * (1 << kLinearBits)));
        out.weight[2 * i + 1] = static_cast<int32_t>(std::nearbyint((at - floor) * (1 << kLinearBits)));
    }
}

}  // namespace

double filter_support(Filter filter) noexcept {
    switch (filter) {
        case Filter::nearest:
        case Filter::opencv_nearest: return 0.0;
        case Filter::box: return 0.5;
        case Filter::bilinear:
        case Filter::opencv_bilinear:
        case Filter::hamming: return 1.0;
        case Filter::bicubic: return 2.0;
        case Filter::lanczos: return 3.0;
    }
    return 0.0;
}

int max_taps(Filter filter, const AxisResize& axis) noexcept {
    if (filter == Filter::nearest || filter == Filter::opencv_nearest) return 1;
    if (filter == Filter::opencv_bilinear) return 2;
    const double stretch = std::max((axis.high - axis.low) / axis.virtual_size, 1.0);
    const double taps = 2 * std::ceil(filter_support(filter) * stretch) + 1;
    return static_cast<int>(std::min<double>(taps, axis.clip_high - axis.clip_low));
}

void compute_weights(Filter filter, const AxisResize& axis, AxisWeights& out) {
    switch (filter) {
        case Filter::nearest: return nearest(axis, out);
        case Filter::box: return antialiased<box>(0.5, axis, out);
        case Filter::bilinear: return antialiased<triangle>(1.0, axis, out);
        case Filter::hamming: return antialiased<hamming>(1.0, axis, out);
        case Filter::bicubic: return antialiased<cubic>(2.0, axis, out);
        case Filter::lanczos: return antialiased<lanczos>(3.0, axis, out);
        case Filter::opencv_nearest: return opencv_nearest(axis, out);
        case Filter::opencv_bilinear: return opencv_bilinear(axis, out);
    }
}

}  // namespace standpipe
