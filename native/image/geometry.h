// Computes the box of pixels that a sample needs, from its geometric transforms and its random key.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "image/resample.h"
#include "simd/channels.h"
#include "system/keys.h"

namespace standpipe {

struct Size {
    int height = 0, width = 0;
};

constexpr bool operator==(Size one, Size other) noexcept {
    return one.height == other.height && one.width == other.width;
}

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

constexpr int kMostPx = 65535;  // along a side, and of padding there

// The ways to continue a picture beyond its border, with the names of numpy.pad.
enum class PadMode : uint8_t { constant, edge, reflect, symmetric };

struct Padding {
    int left = 0, top = 0, right = 0, bottom = 0;  // pixels, none below 0
    PadMode mode = PadMode::constant;
    Colour fill{};  // constant: the colour
};

// The part of the resized and padded picture that is wanted.
struct Window {
    enum class Place : uint8_t { centred, random, everything };

    Place place = Place::centred;
    Size size;  // unused for everything
    Padding padding;
    bool pad_if_needed = false;  // random: a picture that is too small gets what it lacks on both sides
    uint32_t op = 0;             // random: part of the key of random numbers
};

// Adjacent geometric transforms that one pass over the pixels can do:
// [random crop] → [resize] → [window with padding] → [mirror …].
struct GeometryStage {
    enum class Resize : uint8_t { none, exact, shorter_side };

    bool has_crop = false;
    RandomCrop crop;
    Resize resize = Resize::none;
    Size target;       // exact: both; shorter_side: `height` is its length
    int max_size = 0;  // shorter_side: cap of the longer one; 0: none
    // shorter_side: the side's length is drawn from [target.height, random_end); 0: it isn't.
    int random_end = 0;
    uint32_t resize_op = 0;
    Filter filter = Filter::bilinear;
    uint32_t filter_op = 0;  // above 0: the filter is drawn, bilinear or bicubic
    bool has_window = false;
    Window window;
    std::vector<Mirror> mirrors;
    int grid = 1;  // pixels of which the window's place is a multiple, as the picture's sizes are
};

// One axis of a window: which pixels of the resized image it needs, and how many pixels of padding are in
// front of them.
struct WindowSpan {
    int first = 0, count = 0, pad = 0;
    int offset = 0;  // of the window's first pixel in the image; below 0 in front of it
    int length = 0;  // of the image
};

// One stage of one sample: the resampling, and where its result is in the output with its padding.
struct SampleGeometry {
    Size out;  // with padding
    int pad_top = 0, pad_left = 0;
    Geometry resample;
    PadMode mode = PadMode::constant;
    Colour fill{};
    bool hidden = false;  // the whole window is in the padding
    WindowSpan x, y;      // for modes other than constant
};

// Draws the stage's crop and mirror for an image of `source`. `key`: the sample's.
struct Box {
    int x = 0, y = 0, width = 0, height = 0;
};
// The part of an image of `source` that a stage resizes: all of it without a crop.
Box crop_box(const GeometryStage& stage, Size source, const SampleKey& key) noexcept;
Size resized(const GeometryStage& stage, Size source, const SampleKey& key) noexcept;

// Returns whether a resize to this size is refused: positions would leave Pillow's single-precision boxes.
bool is_too_large(Size whole) noexcept;

// The size with padding of a picture of size `whole` before its window is taken.
Size padded(const Window& window, Size whole) noexcept;

// Returns whether the window is inside the padded picture; a centred one always is.
bool fits(const GeometryStage& stage, Size whole) noexcept;

// The pixel that stands at `place` along an axis of `length` pixels, where `mode` isn't constant.
int inside(PadMode mode, int place, int length) noexcept;

// `box` in pixels of the full-size image; `denominator` 1, 2, 4 or 8: the image was decoded at 1/denominator,
// which makes it `decoded`.
SampleGeometry sample_geometry(const GeometryStage& stage, Box box, const SampleKey& key, int denominator,
                               Size decoded) noexcept;

bool draw_mirror(const std::vector<Mirror>& mirrors, const SampleKey& key) noexcept;

// The largest of 8, 4, 2 and 1 at which the decoded box is still at least as large as what it is resized to.
int scale_denominator(const GeometryStage& stage, Box box, const SampleKey& key) noexcept;

}  // namespace standpipe
