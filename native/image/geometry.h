// Computes the box of pixels that a sample needs, from its geometric transforms and its random key.
#pragma once

#include <cstdint>
#include <vector>

#include "image/resample.h"
#include "system/keys.h"

namespace standpipe {

struct Size {
    int height = 0, width = 0;
};

// RandomResizedCrop's box. Ranges as torchvision.transforms.v2.RandomResizedCrop documents them.
struct RandomCrop {
    uint32_t op = 0;
    double scale_low = 0.08, scale_high = 1.0;
    double ratio_low = 0.75, ratio_high = 4.0 / 3.0;
};

struct Mirror {
    uint32_t op = 0;
    double p = 0.5;
};

// Adjacent geometric transforms that one pass over the pixels can do:
// [random crop] → [resize] → [centred window, padded with zeros] → [mirror …].
struct GeometryStage {
    enum class Resize : uint8_t { none, exact, shorter_side };

    bool has_crop = false;
    RandomCrop crop;
    Resize resize = Resize::none;
    Size target;       // exact: both; shorter_side: `height` is its length
    int max_size = 0;  // shorter_side: cap of the longer one; 0: none
    Filter filter = Filter::bilinear;
    bool has_window = false;
    Size window;
    std::vector<Mirror> mirrors;
};

// One stage of one sample: the resampling, and where its result lies in the output with its padding.
struct SampleGeometry {
    Size out;  // with padding
    int pad_top = 0, pad_left = 0;
    Geometry resample;
};

// Draws the stage's crop and mirror for an image of `source`. `key`: the sample's.
struct Box {
    int x = 0, y = 0, width = 0, height = 0;
};
Box draw_crop(const RandomCrop& crop, Size source, const SampleKey& key) noexcept;
Size resized(const GeometryStage& stage, Size source) noexcept;

// `box` in pixels of the full-size image; `denominator` 1, 2, 4 or 8: the image was decoded at 1/denominator,
// which makes it `decoded`.
SampleGeometry sample_geometry(const GeometryStage& stage, Box box, bool mirror, int denominator,
                               Size decoded) noexcept;

bool draw_mirror(const std::vector<Mirror>& mirrors, const SampleKey& key) noexcept;

// The largest of 8, 4, 2 and 1 at which the decoded box is still at least as large as what it is resized to.
int scale_denominator(const GeometryStage& stage, Box box) noexcept;

}  // namespace standpipe
