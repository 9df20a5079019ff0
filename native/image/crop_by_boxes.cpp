// The crop that a picture's boxes decide.
#include <algorithm>

#include "image/geometry.h"

namespace standpipe {
namespace {

double area(const Edges& box) noexcept { return (box[2] - box[0]) * (box[3] - box[1]); }

double overlap(const Edges& a, const Edges& b) noexcept {
    const double across = std::min(a[2], b[2]) - std::max(a[0], b[0]),
                 down = std::min(a[3], b[3]) - std::max(a[1], b[1]);
    const double both = std::max(across, 0.0) * std::max(down, 0.0);
    return both / (area(a) + area(b) - both);
}

// One trial of torchvision's RandomIoUCrop.make_params: a box, or an empty one.
Box try_crop(const CropByBoxes& crop, Size size, std::span<const Edges> boxes, double least,
             Draws& draws) noexcept {
    const auto width = static_cast<int>(size.width * draws.uniform(crop.scale_low, crop.scale_high)),
               height = static_cast<int>(size.height * draws.uniform(crop.scale_low, crop.scale_high));
    if (width == 0 || height == 0) return {};
    const double ratio = static_cast<double>(width) / height;
    if (ratio < crop.ratio_low || ratio > crop.ratio_high) return {};
    const auto left = static_cast<int>((size.width - width) * draws.uniform()),
               top = static_cast<int>((size.height - height) * draws.uniform());
    const Edges window{1.0 * left, 1.0 * top, 1.0 * left + width, 1.0 * top + height};
    const bool fits = std::ranges::any_of(
        boxes, [&](const Edges& box) { return has_centre(window, box) && overlap(box, window) >= least; });
    return fits ? Box{left, top, width, height} : Box{};
}

// The most overlaps that are tried: where none of them may mean that there is no crop, the loop ends.
constexpr int kMostOverlaps = 1000;

}  // namespace

bool has_centre(const Edges& window, const Edges& box) noexcept {
    const double x = (box[0] + box[2]) / 2, y = (box[1] + box[3]) / 2;
    return x > window[0] && x < window[2] && y > window[1] && y < window[3];
}

Box draw_crop_by_boxes(const CropByBoxes& crop, Size size, std::span<const Edges> boxes,
                       const SampleKey& key) noexcept {
    Draws draws(key.op(crop.op));
    for (int i = 0; i < kMostOverlaps && !boxes.empty(); ++i) {
        const double least = crop.overlaps[draws.below(crop.overlaps.size())];
        if (least >= 1) break;
        for (int trial = 0; trial < crop.trials; ++trial)
            if (const Box window = try_crop(crop, size, boxes, least, draws); window.width > 0) return window;
    }
    return {0, 0, size.width, size.height};
}

}  // namespace standpipe
