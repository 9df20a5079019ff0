// A picture blurred by two passes of integer weights, within one level of torchvision's gaussian_blur.
#include <algorithm>
#include <cmath>

#include "pixels/pixels.h"

namespace standpipe {
namespace {

// The picture after the pass along rows, with 8 more bits a value, and a row with its mirrored border.
size_t scratch_bytes(const PixelStage&, const Pixels& form) noexcept {
    const auto border = static_cast<size_t>(form.channels * kMostKernel);
    return sizeof(int16_t) * (form.bytes() + form.row_bytes() + border);
}

// The weights of a kernel of `size`, in 1/65536; their sum is exactly one, so that a flat picture stays.
void weigh(int size, double sigma, uint32_t* weights) noexcept {
    double exact[kMostKernel], sum = 0;
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

// The taps of both passes: places in the kernel, and their signed 16-bit weights. Only the one in the middle
// can need several places, as the others' weights are below half of the sum.
struct Taps {
    static constexpr uint32_t kMost = 32767;

    int count = 0;  // even
    int place[kMostKernel + 3];
    int16_t weight[kMostKernel + 3];
    const int16_t* rows[kMostKernel + 3];

    Taps(const uint32_t* weights, int size) noexcept {
        for (int k = 0; k < size; ++k)
            for (uint32_t rest = weights[k]; rest > 0; rest -= std::min(rest, kMost))
                add(k, std::min(rest, kMost));
        if (count % 2 != 0) add(size / 2, 0);
    }

  private:
    void add(int at, uint32_t part) noexcept {
        place[count] = at;
        weight[count++] = static_cast<int16_t>(part);
    }
};

// A row as 16-bit numbers, with `half` mirrored pixels at both ends.
void widen(const uint8_t* from, int width, int channels, int half, int16_t* line) noexcept {
    for (int x = 1; x <= half; ++x)
        for (int c = 0; c < channels; ++c) {
            line[channels * (half - x) + c] = from[channels * x + c];
            line[channels * (half + width - 1 + x) + c] = from[channels * (width - 1 - x) + c];
        }
    int16_t* __restrict const middle = line + static_cast<ptrdiff_t>(channels) * half;
    for (int i = 0; i < channels * width; ++i) middle[i] = from[i];
}

// Three numbers: the side of the kernel in pixels, odd, and the lowest and the highest deviation in pixels.
void blur(const PixelStage& stage, Draws& draws, Canvas& canvas, uint8_t* scratch) noexcept {
    const int size = std::clamp(static_cast<int>(stage.parameters[0]) | 1, 1, kMostKernel), half = size / 2;
    const double sigma = draws.uniform(stage.parameters[1], stage.parameters[2]);
    const int height = canvas.height(), width = canvas.width();
    if (half >= std::min(height, width)) return;  // refused when it is planned
    const Pixels pixels = canvas.pixels();
    const Kernels& kernels = canvas.kernels();
    uint32_t weights[kMostKernel];
    weigh(size, sigma, weights);
    Taps taps(weights, size);
    const size_t row = pixels.row_bytes();
    auto* const between = reinterpret_cast<int16_t*>(scratch);
    int16_t* const line = between + pixels.bytes();
    for (int t = 0; t < taps.count; ++t) taps.rows[t] = line + pixels.channels * taps.place[t];
    for (int y = 0; y < height; ++y) {
        const size_t at = static_cast<size_t>(y) * row;
        widen(pixels.data + at, width, pixels.channels, half, line);
        kernels.blur_across(taps.rows, taps.weight, taps.count, row, between + at);
    }
    for (int y = 0; y < height; ++y) {
        for (int t = 0; t < taps.count; ++t)
            taps.rows[t] = between + static_cast<size_t>(mirrored(y + taps.place[t] - half, height)) * row;
        kernels.blur_down(taps.rows, taps.weight, taps.count, row,
                          pixels.data + static_cast<size_t>(y) * row);
    }
}

}  // namespace

constinit const PixelKind kGaussianBlur{"gaussian_blur", 3, scratch_bytes, blur};

}  // namespace standpipe
