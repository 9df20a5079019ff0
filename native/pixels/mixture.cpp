// A picture mixed with changed copies of itself, as AugMix does it (Hendrycks et al., arXiv:1912.02781).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "pixels/operations.h"
#include "simd/aligned.h"
#include "system/portable_math.h"

namespace standpipe {
namespace {

using Weights = std::array<float, kMostChains>;

// The logarithm of a gamma distributed number (Marsaglia and Tsang, A Simple Method for Generating Gamma
// Variables, 2000): with a small `shape`, the number itself may be too small for a double.
double drawn_log_gamma(double shape, Draws& draws) noexcept {
    const double third = shape + 1 - 1.0 / 3;
    for (;;) {
        const double normal = drawn_normal(draws), root = 1 + normal / std::sqrt(9 * third);
        const double cube = root * root * root, limit = portable_log(1 - draws.uniform());
        if (cube > 0 && limit < normal * normal / 2 + third * (1 - cube + portable_log(cube)))
            return portable_log(third * cube) + portable_log(1 - draws.uniform()) / shape;
    }
}

// `count` numbers that add up to 1, of the symmetric Dirichlet distribution: gamma distributed numbers,
// divided by their sum.
Weights drawn_weights(double alpha, size_t count, Draws& draws) noexcept {
    std::array<double, kMostChains> parts;
    for (size_t i = 0; i < count; ++i) parts[i] = drawn_log_gamma(alpha, draws);
    const double most = *std::max_element(parts.begin(), parts.begin() + count);
    double sum = 0;
    for (size_t i = 0; i < count; ++i) sum += parts[i] = portable_exp(parts[i] - most);
    Weights weights{};
    for (size_t i = 0; i < count; ++i) weights[i] = static_cast<float>(parts[i] / sum);
    return weights;
}

// Three numbers: the weights' alpha, the number of chains, and the number of stages in each, where 0 stands
// for 1 to 3 at random. A chain applies the only list so often.
struct Numbers {
    double alpha;
    size_t chains, depth;

    explicit Numbers(const PixelStage& stage) noexcept
        : alpha(stage.parameters[0]),
          chains(static_cast<size_t>(stage.parameters[1])),
          depth(static_cast<size_t>(stage.parameters[2])) {}
};

// Scratch memory: the sums, the picture as it was, and what stages of the chains need.
struct Scratch {
    float* sums;
    uint8_t *before, *inner;

    static constexpr size_t bytes(size_t values) noexcept {
        return kLine + whole_lines(sizeof(float) * values) + whole_lines(values);
    }
    Scratch(uint8_t* memory, size_t values) noexcept {
        uint8_t* const line = memory + (kLine - reinterpret_cast<uintptr_t>(memory) % kLine) % kLine;
        sums = reinterpret_cast<float*>(line);
        before = line + whole_lines(sizeof(float) * values);
        inner = before + whole_lines(values);
    }
};

size_t scratch_bytes(const PixelStage& stage, const Pixels& form) noexcept {
    size_t most = 0;
    for (const PixelStage& each : stage.lists.front()) most = std::max(most, each.scratch_bytes(form));
    return Scratch::bytes(form.bytes()) + most;
}

// Products and sums are rounded to float one by one, as torchvision's are.
void add(float weight, const uint8_t* __restrict from, size_t values, float* __restrict sums) noexcept {
    for (size_t i = 0; i < values; ++i) sums[i] += weight * static_cast<float>(from[i]);
}

void apply(const PixelStage& stage, Draws& draws, Canvas& canvas, uint8_t* scratch) noexcept {
    const Numbers numbers(stage);
    const Pixels pixels = canvas.pixels();
    const size_t values = pixels.bytes();
    const Scratch memory(scratch, values);
    const Weights both = drawn_weights(numbers.alpha, 2, draws),
                  weights = drawn_weights(numbers.alpha, numbers.chains, draws);
    std::memcpy(memory.before, pixels.data, values);
    std::fill_n(memory.sums, values, 0.0f);
    add(both[0], memory.before, values, memory.sums);
    for (size_t chain = 0; chain < numbers.chains; ++chain) {
        if (chain > 0) std::memcpy(pixels.data, memory.before, values);
        Canvas copy(canvas.kernels(), pixels);
        for (size_t left = numbers.depth ? numbers.depth : 1 + draws.below(3); left > 0; --left)
            for (const PixelStage& each : stage.lists.front()) each.apply(draws, copy, memory.inner);
        add(weights[chain] * both[1], copy.pixels().data, values, memory.sums);
    }
    for (size_t i = 0; i < values; ++i)
        pixels.data[i] = static_cast<uint8_t>(static_cast<int>(memory.sums[i]));
}

}  // namespace

double drawn_share(double alpha, Draws& draws) noexcept {
    return static_cast<double>(drawn_weights(alpha, 2, draws)[0]);
}

constinit const PixelKind kMixture{"mixture", 3, scratch_bytes, apply};

}  // namespace standpipe
