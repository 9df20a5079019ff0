#include "image/erasing.h"

#include <cmath>
#include <cstring>

#include "image/geometry.h"
#include "image/row_format.h"
#include "system/portable_math.h"

namespace standpipe {
namespace {

constexpr int kTries = 10;

struct Rectangle {
    int top, left, height, width;
};

__extension__ using Half = _Float16;

void put(const RowFormat& format, uint8_t* at, float value) noexcept {
    switch (format.type) {
        case ElementType::u8: *at = static_cast<uint8_t>(value); break;
        case ElementType::f16: {
            const auto half = static_cast<Half>(value);
            std::memcpy(at, &half, sizeof half);
            break;
        }
        case ElementType::f32: std::memcpy(at, &value, sizeof value); break;
    }
}

// A rectangle that fits, as torchvision tries it: false after ten others.
bool draw_rectangle(const Erasing& erasing, double area, Size size, Draws& draws, Rectangle& found) noexcept {
    const double low = portable_log(erasing.ratio_low), high = portable_log(erasing.ratio_high);
    for (int i = 0; i < kTries; ++i) {
        const double target = area * draws.uniform(erasing.scale_low, erasing.scale_high);
        const double ratio = portable_exp(draws.uniform(low, high));
        const double height = std::nearbyint(std::sqrt(target * ratio)),
                     width = std::nearbyint(std::sqrt(target / ratio));
        if (height >= size.height || width >= size.width) continue;
        found.height = static_cast<int>(height);
        found.width = static_cast<int>(width);
        found.top = static_cast<int>(draws.below(static_cast<uint64_t>(size.height - found.height) + 1));
        found.left = static_cast<int>(draws.below(static_cast<uint64_t>(size.width - found.width) + 1));
        return true;
    }
    return false;
}

// Normal numbers are drawn pixel by pixel, and for the channels of each, whatever the layout.
void erase(const Erasing& erasing, const Rectangle& part, const RowFormat& format, Draws& draws,
           const RowArea& row) noexcept {
    const size_t element = format.element_bytes(), width = static_cast<size_t>(row.canvas.width),
                 plane = static_cast<size_t>(row.canvas.height) * width,
                 channels = static_cast<size_t>(format.channels);
    auto value = erasing.value;
    if (erasing.mode == Erasing::Mode::colour)
        for (size_t c = 0; c < channels; ++c) value[c] = static_cast<float>(drawn_normal(draws));
    for (int y = part.top; y < part.top + part.height; ++y)
        for (int x = part.left; x < part.left + part.width; ++x) {
            const size_t pixel = static_cast<size_t>(y) * width + static_cast<size_t>(x);
            for (size_t c = 0; c < channels; ++c) {
                if (erasing.mode == Erasing::Mode::pixel) value[c] = static_cast<float>(drawn_normal(draws));
                put(format, row.first + element * (format.planar ? c * plane + pixel : channels * pixel + c),
                    value[c]);
            }
        }
}

}  // namespace

void Erasing::apply(const SampleKey& key, const RowFormat& format, const RowArea& row) const noexcept {
    if (p <= 0) return;
    Draws draws(key.op(op));
    if (draws.uniform() >= p) return;
    const int count =
        min_count + (max_count > min_count
                         ? static_cast<int>(draws.below(static_cast<uint64_t>(max_count - min_count) + 1))
                         : 0);
    const Size size{row.picture.height / grid, row.picture.width / grid};
    const double area = static_cast<double>(size.height) * size.width / count;
    for (int i = 0; i < count; ++i) {
        Rectangle part{};
        if (draw_rectangle(*this, area, size, draws, part))
            erase(*this, {part.top * grid, part.left * grid, part.height * grid, part.width * grid}, format,
                  draws, row);
    }
}

}  // namespace standpipe
