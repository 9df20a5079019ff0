#include "image/geometry.h"

#include <algorithm>
#include <cmath>

namespace standpipe {
namespace {

// exp and log from additions, multiplications and divisions alone, so that every machine rounds them alike:
// a C library's may differ in the last bit from one version or processor to the next. Error below 4e-16
// relative, for arguments as small as ratios and scales have.
double portable_log(double x) noexcept {
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

double portable_exp(double x) noexcept {
    const double halvings = std::nearbyint(x * 1.44269504088896340736);
    const double r = x - halvings * 0.69314718055994530942;
    double sum = 1.0;
    for (int k = 18; k >= 1; --k) sum = 1.0 + r * sum / k;
    return std::ldexp(sum, static_cast<int>(halvings));
}

// Python's round(): halves go to the even neighbour.
int round_half_even(double x) noexcept { return static_cast<int>(std::nearbyint(x)); }

AxisResize axis_of(int low, int size, int virtual_size, int first, int count, int denominator, int decoded) {
    AxisResize axis;
    axis.low = static_cast<double>(low) / denominator;
    axis.high = static_cast<double>(low + size) / denominator;
    axis.clip_low = low / denominator;
    axis.clip_high = std::min((low + size + denominator - 1) / denominator, decoded);
    axis.high = std::min(axis.high, static_cast<double>(decoded));
    axis.virtual_size = virtual_size;
    axis.first = first;
    axis.count = count;
    return axis;
}

struct Span {
    int first, count, pad;  // of the resized image; zeros in front of it
};

// A centred window, placed as torchvision's center_crop: pads where the image is smaller, and rounds half an
// odd surplus to the even side.
Span centred(int size, int wanted) noexcept {
    if (wanted > size) return {0, size, (wanted - size) / 2};
    return {round_half_even((size - wanted) / 2.0), wanted, 0};
}

}  // namespace

// Ten tries, then the largest centred box inside the ratio range: torchvision's
// RandomResizedCrop.make_params.
Box draw_crop(const RandomCrop& crop, Size source, const SampleKey& key) noexcept {
    Draws draws(key.op(crop.op));
    const double area = static_cast<double>(source.height) * source.width;
    const double log_low = portable_log(crop.ratio_low), log_high = portable_log(crop.ratio_high);
    for (int attempt = 0; attempt < 10; ++attempt) {
        const double target = area * draws.uniform(crop.scale_low, crop.scale_high);
        const double ratio = portable_exp(draws.uniform(log_low, log_high));
        const double w = std::nearbyint(std::sqrt(target * ratio)),
                     h = std::nearbyint(std::sqrt(target / ratio));
        if (w > 0 && w <= source.width && h > 0 && h <= source.height) {
            const int width = static_cast<int>(w), height = static_cast<int>(h);
            const auto y = static_cast<int>(draws.below(static_cast<uint64_t>(source.height - height) + 1));
            const auto x = static_cast<int>(draws.below(static_cast<uint64_t>(source.width - width) + 1));
            return {x, y, width, height};
        }
    }
    const double ratio = static_cast<double>(source.width) / source.height;
    int width = source.width, height = source.height;
    if (ratio < crop.ratio_low)
        height = std::clamp(round_half_even(width / crop.ratio_low), 1, source.height);
    else if (ratio > crop.ratio_high)
        width = std::clamp(round_half_even(height * crop.ratio_high), 1, source.width);
    return {(source.width - width) / 2, (source.height - height) / 2, width, height};
}

bool draw_mirror(const std::vector<Mirror>& mirrors, const SampleKey& key) noexcept {
    bool mirrored = false;
    for (const Mirror& mirror : mirrors) mirrored ^= Draws(key.op(mirror.op)).uniform() < mirror.p;
    return mirrored;
}

// torchvision's rule for a shorter side: the longer one is truncated, and a cap on it shrinks both.
Size resized(const GeometryStage& stage, Size source) noexcept {
    if (stage.resize == GeometryStage::Resize::none) return source;
    if (stage.resize == GeometryStage::Resize::exact) return stage.target;
    const bool portrait = source.width <= source.height;
    const int64_t shorter = portrait ? source.width : source.height,
                  longer = portrait ? source.height : source.width;
    int64_t new_short = stage.target.height;
    auto new_long =
        static_cast<int64_t>(static_cast<double>(new_short * longer) / static_cast<double>(shorter));
    if (stage.max_size > 0 && new_long > stage.max_size) {
        new_short = static_cast<int64_t>(static_cast<double>(stage.max_size * new_short) /
                                         static_cast<double>(new_long));
        new_long = stage.max_size;
    }
    new_short = std::max<int64_t>(new_short, 1);
    const int a = static_cast<int>(new_short), b = static_cast<int>(std::min<int64_t>(new_long, INT32_MAX));
    return portrait ? Size{b, a} : Size{a, b};
}

SampleGeometry sample_geometry(const GeometryStage& stage, Box box, bool mirror, int denominator,
                               Size decoded) noexcept {
    const Size whole = resized(stage, {box.height, box.width});
    const Span y = stage.has_window ? centred(whole.height, stage.window.height) : Span{0, whole.height, 0};
    const Span x = stage.has_window ? centred(whole.width, stage.window.width) : Span{0, whole.width, 0};

    SampleGeometry out;
    out.out = stage.has_window ? stage.window : whole;
    out.pad_top = y.pad;
    // A mirrored picture has its odd column of padding on the other side.
    out.pad_left = mirror ? out.out.width - x.count - x.pad : x.pad;
    Geometry& g = out.resample;
    g.filter = stage.filter;
    g.mirror = mirror;
    g.x = axis_of(box.x, box.width, whole.width, x.first, x.count, denominator, decoded.width);
    g.y = axis_of(box.y, box.height, whole.height, y.first, y.count, denominator, decoded.height);
    const auto resizes = [](const AxisResize& axis) {
        return axis.high - axis.low != axis.virtual_size || axis.low != axis.clip_low;
    };
    g.resize_x = resizes(g.x);
    g.resize_y = resizes(g.y);
    // Pillow 13's order of passes, found by experiment: part of the pixel contract.
    g.vertical_first = box.height > whole.height && box.height - whole.height > 2 * (box.width - whole.width);
    return out;
}

int scale_denominator(const GeometryStage& stage, Box box) noexcept {
    const Size whole = resized(stage, {box.height, box.width});
    for (int denominator : {8, 4, 2})
        if (box.width >= static_cast<int64_t>(whole.width) * denominator &&
            box.height >= static_cast<int64_t>(whole.height) * denominator)
            return denominator;
    return 1;
}

}  // namespace standpipe
