// Pillow's ImageFilter.GaussianBlur: three box blurs of a fractional radius along each axis (Gwosdek and
// others, SSVM 2011), in 24 bits.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "pixels/operations.h"

namespace standpipe {
namespace {

constexpr int kPasses = 3;

struct Box {
    int radius;
    uint32_t weight, edge_weight;  // of the pixels inside, and of the one at each end; 2^24 is one
};

// Single precision, and in Pillow's order.
Box box_of(double deviation) noexcept {
    const auto radius = static_cast<float>(deviation);
    const float variance = radius * radius / kPasses;
    const auto length = static_cast<float>(std::sqrt(12.0 * static_cast<double>(variance) + 1.0));
    const auto whole = static_cast<float>(std::floor((static_cast<double>(length) - 1.0) / 2.0));
    float part = (2 * whole + 1) * (whole * (whole + 1) - 3 * variance);
    part /= 6 * (variance - (whole + 1) * (whole + 1));
    const float box = whole + part;
    const int inner = static_cast<int>(box);
    const auto weight = static_cast<uint32_t>(static_cast<float>(1 << 24) / (box * 2 + 1));
    return {inner, weight, ((1U << 24) - static_cast<uint32_t>(inner * 2 + 1) * weight) / 2};
}

// One pass over `count` lines of `step` bytes each, all at once: along columns a line is a row of the
// picture, along rows it is a pixel.
void pass(const uint8_t* from, uint8_t* to, int count, size_t step, const Box& box, uint32_t* sums) noexcept {
    const auto line = [&](int i) { return from + static_cast<size_t>(std::clamp(i, 0, count - 1)) * step; };
    std::fill_n(sums, step, 0U);
    for (int i = -box.radius - 1; i < box.radius; ++i)
        for (size_t b = 0; b < step; ++b) sums[b] += line(i)[b];
    for (int i = 0; i < count; ++i) {
        const uint8_t *const before = line(i - box.radius - 1), *const last = line(i + box.radius),
                             *const after = line(i + box.radius + 1);
        uint8_t* const out = to + static_cast<size_t>(i) * step;
        for (size_t b = 0; b < step; ++b) {
            sums[b] += static_cast<uint32_t>(last[b]) - before[b];
            const uint32_t ends = static_cast<uint32_t>(before[b]) + after[b];
            out[b] = static_cast<uint8_t>((sums[b] * box.weight + ends * box.edge_weight + (1U << 23)) >> 24);
        }
    }
}

}  // namespace

size_t blur_bytes(const Pixels& form) noexcept {
    return form.bytes() + sizeof(uint32_t) * (form.row_bytes() + 1);
}

void blur_boxes(Canvas& canvas, double radius, uint8_t* scratch) noexcept {
    const Pixels pixels = canvas.pixels();
    const Box box = box_of(radius);
    const size_t row = pixels.row_bytes();
    // Sums need an address that is a multiple of four.
    auto* const sums = reinterpret_cast<uint32_t*>(scratch);
    uint8_t* const copy = scratch + sizeof(uint32_t) * row;
    for (int y = 0; y < pixels.height; ++y) {
        uint8_t* const line = pixels.data + static_cast<size_t>(y) * row;
        for (int i = 0; i < kPasses; ++i) {
            std::memcpy(copy, line, row);
            with_channels(pixels.channels,
                          [&](auto channels) { pass(copy, line, pixels.width, channels, box, sums); });
        }
    }
    for (int i = 0; i < kPasses; ++i) {
        std::memcpy(copy, pixels.data, pixels.bytes());
        pass(copy, pixels.data, pixels.height, row, box, sums);
    }
}

namespace {

size_t scratch_bytes(const PixelStage&, const Pixels& form) noexcept { return blur_bytes(form); }

// Two numbers: the lowest and the highest radius in pixels.
void blur(const PixelStage& stage, Draws& draws, Canvas& canvas, uint8_t* scratch) noexcept {
    blur_boxes(canvas, drawn_factor(stage, draws), scratch);
}

}  // namespace

constinit const PixelKind kPillowBlur{"pillow_blur", 2, scratch_bytes, blur};

}  // namespace standpipe
