// Resampling weights: one axis of an antialiased, separable resize.
#pragma once

#include <cstdint>
#include <vector>

#include "simd/kernels.h"

namespace standpipe {

// Pillow's, and two of OpenCV's, which aren't antialiased.
enum class Filter : uint8_t {
    nearest,
    bilinear,
    bicubic,
    box,
    hamming,
    lanczos,
    opencv_nearest,
    opencv_bilinear
};

// One axis of a resize of [low, high) of a source to `virtual_size` outputs, of which only `count` from
// `first` on are wanted. The source ends at `clip_low` and `clip_high`: taps beyond are dropped, not
// mirrored.
struct AxisResize {
    double low = 0, high = 0;         // box, pixels of the source
    int clip_low = 0, clip_high = 0;  // where source pixels end
    int virtual_size = 0;             // outputs of the whole resize
    int first = 0, count = 0;         // the window of outputs that is computed
};

// Output i is the sum over t < length[i] of source[start[i] + t] * weight[i * taps + t], with kWeightBits.
// OpenCV's bilinear filter has two weights with kLinearBits, also where both are of one pixel at the border.
struct AxisWeights {
    int taps = 0;  // most taps of any output; shorter ones are padded with zeros
    std::vector<int32_t> start, length, weight;
    std::vector<double> scratch;  // of compute_weights

    int begin() const noexcept { return start.empty() ? 0 : start.front(); }
    int end() const noexcept { return start.empty() ? 0 : start.back() + length.back(); }
};

// Returns how far a filter reaches on both sides, in pixels of the larger grid: the source's or the result's.
double filter_support(Filter filter) noexcept;

// The most taps an output of this resize can have: bounds the memory of both passes before they start.
int max_taps(Filter filter, const AxisResize& axis) noexcept;

void compute_weights(Filter filter, const AxisResize& axis, AxisWeights& out);

}  // namespace standpipe
