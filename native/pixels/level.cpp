// An operation of timm's augmentation policies, whose strength is drawn for each picture. `timm/data/
// auto_augment.py` of timm 1.0 has the formulas.
#include <algorithm>
#include <array>
#include <cmath>

#include "pixels/operations.h"
#include "system/portable_math.h"

namespace standpipe {

namespace {

// The order is that of OPERATIONS in standpipe/transform/pixels/timm_augment.py.
enum class Operation : uint8_t {
    autocontrast,
    equalize,
    invert,
    rotate,
    posterize,
    posterize_increasing,
    posterize_original,
    solarize,
    solarize_increasing,
    solarize_add,
    color,
    color_increasing,
    contrast,
    contrast_increasing,
    brightness,
    brightness_increasing,
    sharpness,
    sharpness_increasing,
    shear_x,
    shear_y,
    translate_x,
    translate_y,
    desaturate,
    blur,
    blur_random
};

constexpr int kRandomSampling = 3;  // behind Sampling's values

// Ten numbers: the operation, the magnitude, its standard deviation (below 0: uniform from 0 to the
// magnitude), the largest magnitude, the interpolation (3: bilinear or bicubic at random), the colour
// outside, and the part of a side that magnitude 10 translates by.
struct Level {
    const PixelStage& stage;
    Draws& draws;
    Canvas& canvas;
    uint8_t* scratch;

    double number(size_t i) const noexcept { return stage.parameters[i]; }

    double drawn() const noexcept {
        double magnitude = number(1);
        if (number(2) < 0) magnitude = draws.uniform(0, magnitude);
        else if (number(2) > 0) magnitude += number(2) * drawn_normal(draws);
        return std::max(0.0, std::min(magnitude, number(3))) / 10;
    }

    double signed_as(double value) const noexcept { return draws.uniform() < 0.5 ? -value : value; }

    float increasing(double level) const noexcept {
        return static_cast<float>(std::max(0.1, 1 + signed_as(level * 0.9)));
    }

    static float decreasing(double level) noexcept { return static_cast<float>(level * 1.8 + 0.1); }

    void move(const double (&matrix)[6]) const noexcept {
        int sampling = static_cast<int>(number(4));
        if (sampling == kRandomSampling) sampling = 1 + static_cast<int>(draws.below(2));
        if (canvas.is_mask()) sampling = 0;
        warp(canvas, matrix, static_cast<Sampling>(std::clamp(sampling, 0, 2)), colour_in(stage, 5), scratch);
    }

    void plain(const PixelKind& kind) const noexcept { kind.apply(stage, draws, canvas, scratch); }

    // Values below 128 become larger.
    void lighten_below(int added) const noexcept {
        ByteTable table;
        for (int value = 0; value < 256; ++value)
            table[value] = static_cast<uint8_t>(value < 128 ? std::min(value + added, 255) : value);
        canvas.look_up(table);
    }

    void point(Operation operation, double level) const noexcept;
    void place(Operation operation, double level) const noexcept;
};

void Level::point(Operation operation, double level) const noexcept {
    using enum Operation;
    const int bits = static_cast<int>(std::min(level, 4.0) * 4),
              threshold = std::min(256, static_cast<int>(std::min(level, 4.0) * 256));
    switch (operation) {
        case autocontrast: return plain(kAutocontrast);
        case equalize: return plain(kEqualize);
        case invert: return plain(kInvert);
        case posterize: return standpipe::posterize(canvas, std::min(bits, 8));
        case posterize_increasing: return standpipe::posterize(canvas, std::max(4 - bits, 0));
        case posterize_original: return standpipe::posterize(canvas, std::min(bits + 4, 8));
        case solarize: return standpipe::solarize(canvas, threshold);
        case solarize_increasing: return standpipe::solarize(canvas, 256 - threshold);
        case solarize_add: return lighten_below(std::min(128, static_cast<int>(std::min(level, 4.0) * 110)));
        case color: return saturate(canvas, decreasing(level));
        case color_increasing: return saturate(canvas, increasing(level));
        case contrast: return change_contrast(canvas, decreasing(level));
        case contrast_increasing: return change_contrast(canvas, increasing(level));
        case brightness: return brighten(canvas, decreasing(level));
        case brightness_increasing: return brighten(canvas, increasing(level));
        case sharpness: return sharpen(canvas, decreasing(level), scratch);
        case sharpness_increasing: return sharpen(canvas, increasing(level), scratch);
        case desaturate:
            return saturate(canvas, static_cast<float>(
                                        std::clamp(1 - std::clamp(0.5 + 0.5 * level, 0.5, 1.0), 0.0, 1.0)));
        case blur: return blur_boxes(canvas, std::clamp(0.1 + 1.9 * level, 0.1, 2.0), scratch);
        case blur_random:
            return blur_boxes(canvas, draws.uniform(0.1, 2 * std::clamp(level, 0.0, 1.0)), scratch);
        default: return place(operation, level);
    }
}

void Level::place(Operation operation, double level) const noexcept {
    const double height = canvas.height(), width = canvas.width();
    switch (operation) {
        case Operation::rotate: return move(rotation(signed_as(level * 30), width / 2, height / 2).numbers);
        case Operation::shear_x: return move({1, signed_as(level * 0.3), 0, 0, 1, 0});
        case Operation::shear_y: return move({1, 0, 0, signed_as(level * 0.3), 1, 0});
        case Operation::translate_x: return move({1, 0, signed_as(level * number(9)) * width, 0, 1, 0});
        case Operation::translate_y: return move({1, 0, 0, 0, 1, signed_as(level * number(9)) * height});
        default: return;
    }
}

size_t scratch_bytes(const PixelStage&, const Pixels& form) noexcept {
    return std::max(blur_bytes(form), 2 * form.row_bytes());
}

void apply(const PixelStage& stage, Draws& draws, Canvas& canvas, uint8_t* scratch) noexcept {
    const auto operation = static_cast<Operation>(static_cast<int>(stage.parameters[0]));
    const bool moves = operation == Operation::rotate ||
                       (operation >= Operation::shear_x && operation <= Operation::translate_y);
    Unseen unseen(canvas.kernels());
    const Level level{stage, draws, canvas.is_mask() && !moves ? unseen.canvas() : canvas, scratch};
    level.point(operation, level.drawn());
}

}  // namespace

constinit const PixelKind kLevel{"level", 10, scratch_bytes, apply, true};

}  // namespace standpipe
