#include "pixels/pixels.h"

#include <array>

namespace standpipe {

extern const PixelKind kSharpness;

namespace {

constexpr std::array kKinds{&kSharpness};

}  // namespace

void PixelStage::apply(const SampleKey& key, Pixels pixels, uint8_t* scratch) const noexcept {
    Draws draws(key.op(op));
    if (draws.uniform() < p) kind->apply(parameters, draws, pixels, scratch);
}

std::span<const PixelKind* const> pixel_kinds() noexcept { return kKinds; }

const PixelKind* pixel_kind_named(const std::string& name) noexcept {
    for (const PixelKind* kind : kKinds)
        if (name == kind->name) return kind;
    return nullptr;
}

}  // namespace standpipe
