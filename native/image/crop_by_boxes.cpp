// The crop that a picture's boxes decide.
#include <algorithm>

#include "image/geometry.h"

namespace standpipe {
namespace {

double overlap(const Edges& box, const Box& window) noexcept {
    const double across = std::min(box[2], 1.0 * window.x + window.width) - std::max(box[0], 1.0 * window.x),
                 down = std::min(box[3], 1.0 * window.y + window.height) - std::max(box[1], 1.0 * window.y);
    const double both = std::max(across, 0.0) * std::max(down, 0.0);
    return both / ((box[2] - box[0]) * (box[3] - box[1]) + 1.0 * window.width * window.height - both);
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
    const Box window{left, top, width, height};
    const bool fits = std::ranges::any_of(
        boxes, [&](const Edges& box) { return has_centre(window, box) && overlap(box, window) >= least; });
    return fits ? window : Box{};
}

// The most overlaps that are tried: where none of them may mean that there is no crop, the loop ends.
constexpr int kMostOverlaps = 1000;

}  // namespace

bool has_centre(const Box& window, const Edges& box) noexcept {
    const double x = (box[0] + box[2]) / 2 - window.x, y = (box[1] + box[3]) / 2 - window.y;
    return x > 0 && x < window.width && y > 0 && y < window.height;
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
