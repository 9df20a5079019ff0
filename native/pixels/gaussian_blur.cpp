// A picture blurred by two passes of integer weights, within one level of torchvision's gaussian_blur.
#include <algorithm>
#include <cmath>

#include "pixels/pixels.h"

namespace standpipe {
namespace {

constexpr int kMostSide = 255;  // of the kernel

// The picture after the pass along rows, with 8 more bits a value, a row with its mirrored border, and sums.
size_t scratch_bytes(const PixelStage&, int height, int width) noexcept {
    const size_t row = size_t{3} * static_cast<size_t>(width);
    return sizeof(uint16_t) * (Pixels{nullptr, height, width}.bytes() + row + 3 * kMostSide + 1) +
           sizeof(uint32_t) * row;
}

// The weights of a kernel of `size`, in 1/65536; their sum is exactly one, so that a flat picture stays.
void weigh(int size, double sigma, uint32_t* weights) noexcept {
    double exact[kMostSide], sum = 0;
    for (int i = 0; i < size; ++i) {
        const double away = (i - (size - 1) / 2) / sigma;
        sum += exact[i] = std::exp(-0.5 * away * away);
    }
    uint32_t total = 0;
    for (int i = 0; i < size; ++i)
        total += weights[i] = static_cast<uint32_t>(std::lround(exact[i] / sum * 65536));
    weights[size / 2] += 65536 - total;
}

// The place in [0, length) of one that may lie up to length - 1 outside: mirrored, without repeating the
// edge.
int mirrored(int place, int length) noexcept {
    if (place < 0) return -place;
    return place < length ? place : 2 * (length - 1) - place;
}

// Adds `weight` times each value. Compilers vectorise it, since nothing overlaps `sums`.
void add(uint32_t* __restrict sums, const uint16_t* __restrict values, size_t count,
         uint32_t weight) noexcept {
    for (size_t i = 0; i < count; ++i) sums[i] += weight * values[i];
}

// Three numbers: the side of the kernel in pixels, odd, and the lowest and the highest deviation in pixels.
void blur(const PixelStage& stage, Draws& draws, Canvas& canvas, uint8_t* scratch) noexcept {
    const int size = std::clamp(static_cast<int>(stage.parameters[0]) | 1, 1, kMostSide), half = size / 2;
    const double sigma = draws.uniform(stage.parameters[1], stage.parameters[2]);
    const int height = canvas.height(), width = canvas.width();
    if (half >= std::min(height, width)) return;  // refused when it is planned
    const Pixels pixels = canvas.pixels();
    uint32_t weights[kMostSide];
    weigh(size, sigma, weights);
    int first = 0;
    while (first < half && weights[first] == 0) ++first;  // and as many at the other end
    const size_t row = size_t{3} * static_cast<size_t>(width);
    auto* const sums = reinterpret_cast<uint32_t*>(scratch);
    auto* const between = reinterpret_cast<uint16_t*>(sums + row);
    uint16_t* const line = between + pixels.bytes();
    for (int y = 0; y < height; ++y) {
        const uint8_t* const from = pixels.rgb + static_cast<size_t>(y) * row;
        for (int x = -half; x < width + half; ++x)
            for (int c = 0; c < 3; ++c) line[3 * (x + half) + c] = from[3 * mirrored(x, width) + c];
        std::fill_n(sums, row, 128U);
        for (int k = first; k < size - first; ++k)
            add(sums, line + 3 * static_cast<size_t>(k), row, weights[k]);
        uint16_t* const to = between + static_cast<size_t>(y) * row;
        for (size_t i = 0; i < row; ++i) to[i] = static_cast<uint16_t>(sums[i] >> 8);
    }
    for (int y = 0; y < height; ++y) {
        std::fill_n(sums, row, 1U << 23);
        for (int k = first; k < size - first; ++k)
            add(sums, between + static_cast<size_t>(mirrored(y + k - half, height)) * row, row, weights[k]);
        uint8_t* const to = pixels.rgb + static_cast<size_t>(y) * row;
        for (size_t i = 0; i < row; ++i) to[i] = static_cast<uint8_t>(sums[i] >> 24);
    }
}

}  // namespace

extern const PixelKind kGaussianBlur;
constinit const PixelKind kGaussianBlur{"gaussian_blur", 3, scratch_bytes, blur};

}  // namespace standpipe
