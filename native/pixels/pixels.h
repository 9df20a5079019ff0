// Stages that change the pixels of a whole picture where they are: points, filters, warps.
//
// A kind of stage is a file of this folder with one constant PixelKind, which is declared here, and an entry
// in the table of pixels.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "pixels/canvas.h"
#include "system/keys.h"

namespace standpipe {

constexpr int kMostKernel = 255;  // pixels along a side of a blur's kernel

struct PixelStage;

struct PixelKind {
    const char* name;
    size_t parameters;  // how many numbers describe one
    // The bytes that `apply` needs beside a picture of this form.
    size_t (*scratch_bytes)(const PixelStage& stage, const Pixels& form) noexcept;
    // `draws`: behind the one that decided whether the stage takes place.
    void (*apply)(const PixelStage& stage, Draws& draws, Canvas& canvas, uint8_t* scratch) noexcept;
    bool takes_masks = false;  // `apply` moves pixels; a mask goes through it as well
};

// A picture of one pixel, for stages that change values. On it, they use the random numbers that they would
// use on the picture of a mask, which must not change.
class Unseen {
  public:
    explicit Unseen(const Kernels& kernels) noexcept : canvas_(kernels, {bytes_, 1, 1}) {}

    Canvas& canvas() noexcept { return canvas_; }

  private:
    uint8_t bytes_[3 + 64] = {};  // kernels may read behind a picture's end
    Canvas canvas_;
};

// A stage of a program. It takes place with probability `p`.
struct PixelStage {
    const PixelKind* kind = nullptr;
    uint32_t op = 0;  // with the sample, the key of its random numbers, and of those of `lists`
    double p = 1;
    std::vector<double> parameters;
    std::vector<std::vector<PixelStage>> lists;  // what a group of stages chooses among
    // Of the result; 0: the picture's. Only a warp outside of groups may have a size, with p 1 and OpenCV's
    // pixels.
    int height = 0, width = 0;

    // Returns the form of a picture after the stage.
    Pixels after(Pixels form) const noexcept;
    size_t scratch_bytes(const Pixels& form) const noexcept { return kind->scratch_bytes(*this, form); }
    void apply(const SampleKey& key, Canvas& canvas, uint8_t* scratch) const noexcept;
    // Applies the stage with random numbers of the group that it is part of.
    void apply(Draws& draws, Canvas& canvas, uint8_t* scratch) const noexcept;
};

// A picture of `form` on its way through stages: its form after them, and the most bytes that it has, and
// that a stage needs beside it. Colours count where a stage takes them away.
struct Passage {
    Pixels form;
    size_t bytes, scratch_bytes;
};
Passage passage(std::span<const PixelStage> stages, Pixels form) noexcept;

// Returns 0, for kinds that need no memory besides the picture.
size_t no_scratch(const PixelStage& stage, const Pixels& form) noexcept;
// Returns the bytes of a picture, for kinds that need a copy of it.
size_t whole_picture(const PixelStage& stage, const Pixels& form) noexcept;

// The colour in four parameters from `at` on.
Colour colour_in(const PixelStage& stage, size_t at) noexcept;

// The factor of a stage whose first parameters are the lowest and the highest.
double drawn_factor(const PixelStage& stage, Draws& draws) noexcept;

extern const PixelKind kAffine, kAutocontrast, kBrightness, kContrast, kEqualize, kFlip, kGaussianBlur,
    kGrayscale, kHsv, kHue, kInvert, kLevel, kPermute, kPerspective, kPillowBlur, kPosterize, kRandomAffine,
    kRotation, kSaturation, kSharpness, kSolarize;
// Applies one of `lists`: the first whose cumulative weight in `parameters` is above a random number.
extern const PixelKind kChoice;
// Applies all of `lists` in random order.
extern const PixelKind kShuffle;
inline constexpr size_t kMostShuffled = 64;  // lists
// Leaves one channel of colours.
extern const PixelKind kToGrey;
// Mixes the picture with copies of itself that the only one of `lists` has changed.
extern const PixelKind kMixture;
inline constexpr int kMostChains = 16;  // copies

// The kinds that numbers alone describe.
std::span<const PixelKind* const> pixel_kinds() noexcept;

// Null for an unknown name.
const PixelKind* pixel_kind_named(const std::string& name) noexcept;

}  // namespace standpipe
