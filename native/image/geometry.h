// Computes the box of pixels that a sample needs, from its geometric transforms and its random key.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
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

// "width × height".
std::string text_of(Size size);

// RandomResizedCrop's box. Ranges as torchvision.transforms.v2.RandomResizedCrop documents them.
struct RandomCrop {
    uint32_t op = 0;
    double scale_low = 0.08, scale_high = 1.0;
    double ratio_low = 0.75, ratio_high = 4.0 / 3.0;
};

struct Box {
    int x = 0, y = 0, width = 0, height = 0;

    Size size() const noexcept { return {height, width}; }
};

// RandomIoUCrop: a crop that the picture's boxes decide. A trace draws it, and the row is given it.
struct CropByBoxes {
    uint32_t op = 0;
    double scale_low = 0.3, scale_high = 1.0;
    double ratio_low = 0.5, ratio_high = 2.0;
    std::vector<double> overlaps;  // least overlap with a box, one at random; from 1 on: there is no crop
    int trials = 40;
    size_t number = 0;  // among the crops of the row
};

struct Mirror {
    uint32_t op = 0;
    double p = 0.5;
};

// RandomZoomOut: the picture becomes a part of a larger one, whose sides are `low` to `high` times as long.
struct ZoomOut {
    uint32_t op = 0;
    double p = 0, low = 1, high = 4;  // p 0: the stage has none
    Colour fill{};
};

constexpr int kMostZoom = 256;  // times as long, of a side
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
    // diagonal: as far along one axis as along the other, in shares; what it lacks is padded behind.
    enum class Place : uint8_t { centred, random, diagonal, everything };

    Place place = Place::centred;
    Size size;  // unused for everything
    int low = 0,
        high = 0;  // random, `high` above 0: `size` is drawn, each side from [low, high] as far as it fits
    Padding padding;
    bool pad_if_needed = false;  // random: a picture that is too small gets what it lacks on both sides
    uint32_t op = 0;             // random and diagonal: part of the key of random numbers
};

// RandomApply of geometric transforms: a stage does nothing unless a random number says so.
struct Chance {
    uint32_t op = 0;  // stages with the same one have the same answer; 0: it always takes place
    double p = 1;
};

// Adjacent geometric transforms that one pass over the pixels can do:
// [zoom out] → [random crop, or one by boxes] → [mirror …] → [resize] → [window with padding] → [mirror …].
struct GeometryStage {
    // jitter: as large as fits into the target, times a random scale. listed: the shorter side has one of
    // several lengths. fit: as large as fits into the target.
    enum class Resize : uint8_t { none, exact, shorter_side, jitter, listed, fit };

    ZoomOut zoom_out;
    bool has_crop = false;
    RandomCrop crop;
    std::optional<CropByBoxes> crop_by_boxes;
    std::vector<Mirror> early_mirrors;
    Resize resize = Resize::none;
    Size target;       // exact, jitter and fit: both; shorter_side: `height` is its length
    int max_size = 0;  // shorter_side and listed: cap of the longer one; 0: none
    double scale_low = 1, scale_high = 1;  // jitter
    std::vector<int> lengths;              // listed: at least one
    // shorter_side: the side's length is drawn from [target.height, random_end); 0: it isn't.
    int random_end = 0;
    bool only_smaller = false, round_up = false;  // fit: a picture that fits stays; sides aren't just rounded
    uint32_t resize_op = 0;  // shorter_side, jitter and listed: part of the key of random numbers
    Filter filter = Filter::bilinear;
    uint32_t filter_op = 0;  // above 0: the filter is drawn, bilinear or bicubic
    bool has_window = false;
    Window window;
    std::vector<Mirror> mirrors;
    int grid = 1;  // pixels of which the window's place is a multiple, as the picture's sizes are
    Chance chance;
};

// A stage as it is for one sample: it does nothing where its chance says no. With the key of its random
// numbers.
struct DrawnStage {
    const GeometryStage& stage;
    SampleKey key;
};

// Returns a stage as it is for the sample of a key, before anything else is drawn by it.
DrawnStage drawn(const GeometryStage& stage, const SampleKey& key) noexcept;

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

// A box of a canvas that has the source in it: a stage resizes it.
struct Cut {
    Size source;
    Size canvas;            // the source's size, unless the stage zooms out
    int left = 0, top = 0;  // of the source in the canvas
    Box box;                // all of the canvas without a crop
    bool mirrored = false;  // the box, before it is resized

    bool is_framed() const noexcept { return mirrored || canvas != source; }
};

// The edges of a box in a picture: left, top, right, bottom.
using Edges = std::array<double, 4>;

// Returns whether a box's centre is in a window, and not on its edge.
bool has_centre(const Edges& window, const Edges& box) noexcept;

// Draws a crop of a picture of `size` that has these boxes: all of it, if none is found.
Box draw_crop_by_boxes(const CropByBoxes& crop, Size size, std::span<const Edges> boxes,
                       const SampleKey& key) noexcept;

// Draws what a stage does before the resize to a picture of `source`. `key`: the sample's, with the windows
// of crops by boxes.
Cut cut_of(const GeometryStage& stage, Size source, const SampleKey& key) noexcept;
Size resized(const GeometryStage& stage, Size source, const SampleKey& key) noexcept;

// Returns whether a resize to this size is refused: positions would leave Pillow's single-precision boxes.
bool is_too_large(Size whole) noexcept;

// The size with padding of a picture of size `whole` before its window is taken.
Size padded(const Window& window, Size whole) noexcept;

// Returns whether the window is inside the padded picture; a centred one always is.
bool fits(const GeometryStage& stage, Size whole) noexcept;

// The pixel that stands at `place` along an axis of `length` pixels, where `mode` isn't constant.
int inside(PadMode mode, int place, int length) noexcept;

// `cut` in pixels of the full-size image; `denominator` 1, 2, 4 or 8: the image was decoded at 1/denominator.
SampleGeometry sample_geometry(const GeometryStage& stage, const Cut& cut, const SampleKey& key,
                               int denominator) noexcept;

bool draw_mirror(const std::vector<Mirror>& mirrors, const SampleKey& key) noexcept;

// The largest of 8, 4, 2 and 1 at which the decoded box is still at least as large as what it is resized to;
// 1 for a framed one.
int scale_denominator(const GeometryStage& stage, const Cut& cut, const SampleKey& key) noexcept;

}  // namespace standpipe
