#include "pixels/pixels.h"

#include <algorithm>
#include <array>

namespace standpipe {
namespace {

constexpr std::array kKinds{&kAffine,    &kAutocontrast, &kBrightness, &kContrast,    &kEqualize,
                            &kFlip,      &kGaussianBlur, &kGrayscale,  &kHsv,         &kHue,
                            &kInvert,    &kLevel,        &kPermute,    &kPerspective, &kPillowBlur,
                            &kPosterize, &kRandomAffine, &kRotation,   &kSaturation,  &kSharpness,
                            &kSolarize,  &kToGrey};

}  // namespace

void PixelStage::apply(const SampleKey& key, Canvas& canvas, uint8_t* scratch) const noexcept {
    Draws draws(key.op(op));
    apply(draws, canvas, scratch);
}

void PixelStage::apply(Draws& draws, Canvas& canvas, uint8_t* scratch) const noexcept {
    if (draws.uniform() >= p) return;
    Unseen unseen(canvas.kernels());
    kind->apply(*this, draws, canvas.is_mask() && !kind->takes_masks ? unseen.canvas() : canvas, scratch);
}

Pixels PixelStage::after(Pixels form) const noexcept {
    if (height == 0) return form;
    form.height = height;
    form.width = width;
    return form;
}

Passage passage(std::span<const PixelStage> stages, Pixels form) noexcept {
    Passage all{form, form.bytes(), 0};
    for (const PixelStage& stage : stages) {
        all.scratch_bytes = std::max(all.scratch_bytes, stage.scratch_bytes(all.form));
        all.form = stage.after(all.form);
        all.bytes = std::max(all.bytes, all.form.bytes());
    }
    return all;
}

size_t no_scratch(const PixelStage&, const Pixels&) noexcept { return 0; }

size_t whole_picture(const PixelStage&, const Pixels& form) noexcept { return form.bytes(); }

Colour colour_in(const PixelStage& stage, size_t at) noexcept {
    Colour colour;
    for (size_t c = 0; c < colour.size(); ++c) colour[c] = static_cast<uint8_t>(stage.parameters[at + c]);
    return colour;
}

double drawn_factor(const PixelStage& stage, Draws& draws) noexcept {
    return draws.uniform(stage.parameters[0], stage.parameters[1]);
}

std::span<const PixelKind* const> pixel_kinds() noexcept { return kKinds; }

const PixelKind* pixel_kind_named(const std::string& name) noexcept {
    for (const PixelKind* kind : kKinds)
        if (name == kind->name) return kind;
    return nullptr;
}

}  // namespace standpipe
