#include "image/geometry.h"

#include <algorithm>
#include <cmath>

#include "system/portable_math.h"

namespace standpipe {
namespace {

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

// The part of a window in an image, from where the window begins. With constant padding, a window without any
// pixel of the image keeps the nearest one, so that no pass is empty.
WindowSpan span_at(int offset, int wanted, int length, PadMode mode) noexcept {
    WindowSpan span{0, 0, std::max(-offset, 0), offset, length};
    int last = 0;
    if (mode == PadMode::constant || (offset >= 0 && offset + wanted <= length)) {
        span.first = std::clamp(offset, 0, length - 1);
        last = std::clamp(offset + wanted - 1, span.first, length - 1);
    } else {
        span.first = length - 1;
        for (int i = 0; i < wanted; ++i) {
            const int place = inside(mode, offset + i, length);
            span.first = std::min(span.first, place);
            last = std::max(last, place);
        }
    }
    span.count = last - span.first + 1;
    return span;
}

// A centred window, placed as torchvision's center_crop: pads where the image is smaller, and rounds half an
// odd surplus to the even side.
WindowSpan centred(int size, int wanted, int grid) noexcept {
    const int surplus = (size - wanted) / grid;
    const int offset = surplus < 0 ? surplus / 2 : round_half_even(surplus / 2.0);
    return span_at(offset * grid, wanted, size, PadMode::constant);
}

// The pixels of padding in front of an axis, with those that the window needs.
int in_front(const Window& window, int padding, int padded_size, int wanted) noexcept {
    const bool lacks = window.place == Window::Place::random && window.pad_if_needed && padded_size < wanted;
    return padding + (lacks ? wanted - padded_size : 0);
}

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

// A resize to more than this along one side is refused.
constexpr int kMaxSide = 1 << 24;

int truncated(double x) noexcept { return static_cast<int>(std::min(x, 2.0 * kMaxSide)); }

// torchvision's RandomZoomOut.make_params.
void draw_zoom_out(const ZoomOut& zoom, const SampleKey& key, Cut& cut) noexcept {
    Draws draws(key.op(zoom.op));
    if (draws.uniform() >= zoom.p) return;
    const double times = draws.uniform(zoom.low, zoom.high);
    const auto side = [&](int of_source) {
        return std::clamp(truncated(of_source * times), of_source, std::max(of_source, kMaxSide));
    };
    cut.canvas = {side(cut.source.height), side(cut.source.width)};
    cut.left = truncated((cut.canvas.width - cut.source.width) * draws.uniform());
    cut.top = truncated((cut.canvas.height - cut.source.height) * draws.uniform());
}

// A resize of both sides by one factor, which truncates them, as torchvision's ScaleJitter and
// RandomShortestSize do.
Size times(Size source, double factor) noexcept {
    return {std::max(truncated(source.height * factor), 1), std::max(truncated(source.width * factor), 1)};
}

// torchvision's ScaleJitter takes the target's height for the width, and so do we.
Size jittered(const GeometryStage& stage, Size source, const SampleKey& key) noexcept {
    const double fits = std::min(static_cast<double>(stage.target.width) / source.height,
                                 static_cast<double>(stage.target.height) / source.width);
    return times(source, fits * Draws(key.op(stage.resize_op)).uniform(stage.scale_low, stage.scale_high));
}

Size of_listed_length(const GeometryStage& stage, Size source, const SampleKey& key) noexcept {
    const double length = stage.lengths[Draws(key.op(stage.resize_op)).below(stage.lengths.size())];
    double factor = length / std::min(source.height, source.width);
    if (stage.max_size > 0)
        factor =
            std::min(factor, static_cast<double>(stage.max_size) / std::max(source.height, source.width));
    return times(source, factor);
}

// The YOLO family's rule for frames and letter boxes.
Size fitted(const GeometryStage& stage, Size source) noexcept {
    double factor = std::min(static_cast<double>(stage.target.height) / source.height,
                             static_cast<double>(stage.target.width) / source.width);
    if (stage.only_smaller) factor = std::min(factor, 1.0);
    const auto side = [&](int length, int most) {
        const double scaled = length * factor;
        return std::clamp(stage.round_up ? static_cast<int>(std::ceil(scaled)) : round_half_even(scaled), 1,
                          most);
    };
    return {side(source.height, stage.target.height), side(source.width, stage.target.width)};
}

}  // namespace

std::string text_of(Size size) { return std::to_string(size.width) + " × " + std::to_string(size.height); }

DrawnStage drawn(const GeometryStage& stage, const SampleKey& key) noexcept {
    static const GeometryStage nothing;
    if (stage.chance.op == 0) return {stage, key};
    if (Draws(key.op(stage.chance.op)).uniform() >= stage.chance.p) return {nothing, key};
    return {stage, key.salted(stage.chance.op)};
}

Cut cut_of(const GeometryStage& stage, Size source, const SampleKey& key) noexcept {
    Cut cut{source, source, 0, 0, {}, false};
    if (stage.zoom_out.p > 0) draw_zoom_out(stage.zoom_out, key, cut);
    cut.box = {0, 0, cut.canvas.width, cut.canvas.height};
    if (stage.has_crop) cut.box = draw_crop(stage.crop, cut.canvas, key);
    if (stage.crop_by_boxes && key.windows) {
        const int32_t* const given = key.windows + 4 * stage.crop_by_boxes->number;
        // A file of another size than annotations say may have no such window. It is refused later.
        Box& box = cut.box;
        box.x = std::clamp(given[0], 0, cut.canvas.width - 1);
        box.y = std::clamp(given[1], 0, cut.canvas.height - 1);
        box.width = std::clamp(given[2], 1, cut.canvas.width - box.x);
        box.height = std::clamp(given[3], 1, cut.canvas.height - box.y);
    }
    cut.mirrored = draw_mirror(stage.early_mirrors, key);
    return cut;
}

bool is_too_large(Size whole) noexcept { return whole.height > kMaxSide || whole.width > kMaxSide; }

bool draw_mirror(const std::vector<Mirror>& mirrors, const SampleKey& key) noexcept {
    bool mirrored = false;
    for (const Mirror& mirror : mirrors) mirrored ^= Draws(key.op(mirror.op)).uniform() < mirror.p;
    return mirrored;
}

// torchvision's rule for a shorter side: the longer one is truncated, and a cap on it shrinks both.
Size resized(const GeometryStage& stage, Size source, const SampleKey& key) noexcept {
    switch (stage.resize) {
        case GeometryStage::Resize::none: return source;
        case GeometryStage::Resize::exact: return stage.target;
        case GeometryStage::Resize::jitter: return jittered(stage, source, key);
        case GeometryStage::Resize::listed: return of_listed_length(stage, source, key);
        case GeometryStage::Resize::fit: return fitted(stage, source);
        case GeometryStage::Resize::shorter_side: break;
    }
    const bool portrait = source.width <= source.height;
    const int64_t shorter = portrait ? source.width : source.height,
                  longer = portrait ? source.height : source.width;
    int64_t new_short = stage.target.height;
    if (stage.random_end > 0)
        new_short +=
            Draws(key.op(stage.resize_op)).below(static_cast<uint64_t>(stage.random_end - new_short));
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

int inside(PadMode mode, int place, int length) noexcept {
    if (place >= 0 && place < length) return place;
    if (mode == PadMode::edge || length == 1) return std::clamp(place, 0, length - 1);
    const int period = mode == PadMode::reflect ? 2 * (length - 1) : 2 * length;
    place %= period;
    if (place < 0) place += period;
    if (place < length) return place;
    return mode == PadMode::reflect ? period - place : period - 1 - place;
}

Size padded(const Window& window, Size whole) noexcept {
    const Padding& padding = window.padding;
    Size size{whole.height + padding.top + padding.bottom, whole.width + padding.left + padding.right};
    if (window.place != Window::Place::random || !window.pad_if_needed) return size;
    size.height += 2 * std::max(window.size.height - size.height, 0);
    size.width += 2 * std::max(window.size.width - size.width, 0);
    return size;
}

bool fits(const GeometryStage& stage, Size whole) noexcept {
    if (!stage.has_window || stage.window.place != Window::Place::random) return true;
    const Size size = padded(stage.window, whole);
    return stage.window.size.height <= size.height && stage.window.size.width <= size.width;
}

namespace {

// Fills in the output's size and the spans of both axes.
void place_window(const Window& window, Size whole, int grid, const SampleKey& key,
                  SampleGeometry& out) noexcept {
    if (window.place == Window::Place::centred) {
        out.out = window.size;
        out.y = centred(whole.height, window.size.height, grid);
        out.x = centred(whole.width, window.size.width, grid);
        out.fill = window.padding.fill;
        return;
    }
    const Padding& padding = window.padding;
    const Size size = padded(window, whole);
    int top = 0, left = 0;
    out.out = size;
    if (window.place == Window::Place::diagonal) {
        const double share = Draws(key.op(window.op)).uniform();
        out.out = window.size;
        top = static_cast<int>(std::max(size.height - window.size.height, 0) * share);
        left = static_cast<int>(std::max(size.width - window.size.width, 0) * share);
    } else if (window.place == Window::Place::random) {
        Draws draws(key.op(window.op));
        out.out = window.size;
        const auto side = [&](int whole) {
            const int most = std::min(whole, window.high), least = std::min(window.low, most);
            return least + static_cast<int>(draws.below(static_cast<uint64_t>(most - least) + 1));
        };
        if (window.high > 0) {
            out.out.width = side(size.width);
            out.out.height = side(size.height);
        }
        const auto place = [&](int surplus) {
            return grid * static_cast<int>(draws.below(static_cast<uint64_t>(surplus / grid) + 1));
        };
        top = place(size.height - out.out.height);
        left = place(size.width - out.out.width);
    }
    const int above =
        in_front(window, padding.top, whole.height + padding.top + padding.bottom, window.size.height);
    const int beside =
        in_front(window, padding.left, whole.width + padding.left + padding.right, window.size.width);
    out.y = span_at(top - above, out.out.height, whole.height, padding.mode);
    out.x = span_at(left - beside, out.out.width, whole.width, padding.mode);
    out.mode = padding.mode;
    out.fill = padding.fill;
    const auto hides = [](const WindowSpan& span, int wanted) {
        return span.offset >= span.length || span.offset + wanted <= 0;
    };
    out.hidden =
        padding.mode == PadMode::constant && (hides(out.y, out.out.height) || hides(out.x, out.out.width));
}

// Narrows a span to the outputs that depend on a pixel of the source, [at, at + length) of the canvas, or to
// the nearest one. Returns whether there are any. `axis`: of the span.
bool narrow(WindowSpan& span, const AxisResize& axis, double support, int at, int length) noexcept {
    const double scale = (axis.high - axis.low) / axis.virtual_size;
    const double reach = support * std::max(scale, 1.0) + 1;
    const double end = span.first + span.count;
    const double first = std::floor((at - reach - axis.low) / scale - 0.5),
                 last = std::ceil((at + length + reach - axis.low) / scale - 0.5);
    const bool sees = first < end && last >= span.first;
    const int begin = static_cast<int>(std::clamp(first, 1.0 * span.first, end - 1));
    span.count = static_cast<int>(std::clamp(last + 1, begin + 1.0, end)) - begin;
    span.pad += begin - span.first;
    span.first = begin;
    return sees;
}

bool leaves(const WindowSpan& span, int wanted) noexcept {
    return span.offset < 0 || span.offset + wanted > span.length;
}

// Leaves the outputs that have nothing but the colour around the source to the padding, where that is of the
// same colour.
void leave_out_surround(const Colour& colour, SampleGeometry& out) noexcept {
    Geometry& g = out.resample;
    const bool pads = leaves(out.x, out.out.width) || leaves(out.y, out.out.height);
    if (pads && (out.mode != PadMode::constant || out.fill != colour)) return;
    const double support = filter_support(g.filter);
    const bool x = narrow(out.x, g.x, support, g.surround.left, g.surround.width),
               y = narrow(out.y, g.y, support, g.surround.top, g.surround.height);
    out.hidden |= !x || !y;
    out.mode = PadMode::constant;
    out.fill = colour;
}

Filter filter_of(const GeometryStage& stage, const SampleKey& key) noexcept {
    if (stage.filter_op == 0) return stage.filter;
    return Draws(key.op(stage.filter_op)).below(2) == 0 ? Filter::bilinear : Filter::bicubic;
}

}  // namespace

SampleGeometry sample_geometry(const GeometryStage& stage, const Cut& cut, const SampleKey& key,
                               int denominator) noexcept {
    Box box = cut.box;
    const Size whole = resized(stage, box.size(), key);
    SampleGeometry out;
    out.out = whole;
    out.y = {0, whole.height, 0, 0, whole.height};
    out.x = {0, whole.width, 0, 0, whole.width};
    if (stage.has_window) place_window(stage.window, whole, stage.grid, key, out);
    Geometry& g = out.resample;
    g.filter = filter_of(stage, key);
    g.mirror = draw_mirror(stage.mirrors, key);
    int left = cut.left;
    if (cut.mirrored) {  // the canvas with all that is in it
        left = cut.canvas.width - left - cut.source.width;
        box.x = cut.canvas.width - box.x - box.width;
    }
    const auto set_axes = [&] {
        const auto decoded = [&](int side) { return (side + denominator - 1) / denominator; };
        g.x = axis_of(box.x, box.width, whole.width, out.x.first, out.x.count, denominator,
                      decoded(cut.canvas.width));
        g.y = axis_of(box.y, box.height, whole.height, out.y.first, out.y.count, denominator,
                      decoded(cut.canvas.height));
    };
    set_axes();
    if (cut.is_framed())
        g.surround = {
            true, cut.mirrored, left, cut.top, cut.source.width, cut.source.height, stage.zoom_out.fill};
    if (cut.canvas != cut.source) {
        leave_out_surround(stage.zoom_out.fill, out);
        set_axes();
    }
    out.pad_top = out.y.pad;
    // A mirrored picture has its odd column of padding on the other side.
    out.pad_left = g.mirror ? out.out.width - out.x.count - out.x.pad : out.x.pad;
    const auto resizes = [](const AxisResize& axis) {
        return axis.high - axis.low != axis.virtual_size || axis.low != axis.clip_low;
    };
    g.resize_x = resizes(g.x);
    g.resize_y = resizes(g.y);
    // Pillow 13's order of passes, found by experiment: part of the pixel contract.
    g.vertical_first = box.height > whole.height && box.height - whole.height > 2 * (box.width - whole.width);
    if (g.is_linear()) {
        g.resize_x = g.resize_y = g.resize_x || g.resize_y;
        g.vertical_first = false;
    }
    return out;
}

int scale_denominator(const GeometryStage& stage, const Cut& cut, const SampleKey& key) noexcept {
    if (cut.is_framed()) return 1;
    const Size whole = resized(stage, cut.box.size(), key);
    for (int denominator : {8, 4, 2})
        if (cut.box.width >= static_cast<int64_t>(whole.width) * denominator &&
            cut.box.height >= static_cast<int64_t>(whole.height) * denominator)
            return denominator;
    return 1;
}

}  // namespace standpipe
