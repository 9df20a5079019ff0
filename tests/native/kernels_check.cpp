// Every set of kernels that this machine runs against the scalar ones, on random plans: the same bytes,
// nothing written beyond what each may; and every way to take a checksum. Prints the sets' names; exits with
// 1 and a sentence at the first difference.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "simd/channels.h"
#include "simd/simd.h"
#include "system/checksum.h"
#include "system/keys.h"

namespace standpipe {
namespace {

constexpr size_t kGuard = 64;
constexpr uint8_t kGuardByte = 0xc5;
constexpr int kPlans = 4000, kRows = 1500, kWidths = 300;
// 255 times the sum of all weights' sizes must stay below 2^31, rounding included.
constexpr int64_t kMostWeight = (INT64_C(1) << 31) / 255 - (1 << 14);

[[noreturn]] void fail(const char* kernels, const std::string& what) {
    std::printf("%s: %s\n", kernels, what.c_str());
    std::exit(1);
}

int between(Draws& draws, int low, int high) {
    return low + static_cast<int>(draws.below(static_cast<uint64_t>(high - low) + 1));
}

std::vector<uint8_t> random_bytes(Draws& draws, size_t count) {
    std::vector<uint8_t> bytes(count);
    // Runs of 0 and 255 reach the ends of the range.
    const auto kind = draws.below(4);
    for (uint8_t& byte : bytes)
        byte = static_cast<uint8_t>(kind == 0 ? 255 * draws.below(2) : kind == 1 ? 255 : draws.below(256));
    return bytes;
}

// Memory for `bytes` of a kernel's output, what it may write behind them, and a guard.
struct Output {
    Output(size_t wanted, size_t slack) : bytes(wanted), all(wanted + slack + kGuard, kGuardByte) {}

    void expect(const Output& want, const char* kernels, const std::string& what) const {
        const auto [a, b] =
            std::mismatch(all.begin(), all.begin() + static_cast<long>(bytes), want.all.begin());
        if (a != all.begin() + static_cast<long>(bytes))
            fail(kernels, what + ": byte " + std::to_string(a - all.begin()) + " is " + std::to_string(*a) +
                              " instead of " + std::to_string(*b));
        if (std::any_of(all.end() - kGuard, all.end(), [](uint8_t byte) { return byte != kGuardByte; }))
            fail(kernels, what + ": wrote further than it may");
    }

    size_t bytes;
    std::vector<uint8_t> all;
};

// Signed weights whose sizes add up to at most kMostWeight: some of a single large one, some of many.
std::vector<int32_t> random_weights(Draws& draws, int taps) {
    std::vector<double> raw(static_cast<size_t>(taps));
    double sum = 0;
    const bool spiky = draws.below(2);
    for (double& weight : raw) {
        weight = draws.uniform(-1.0, 1.0);
        if (spiky) weight = std::pow(weight, 9);
        sum += std::fabs(weight);
    }
    const auto most = static_cast<double>(draws.below(2) ? kMostWeight : 1 << kWeightBits);
    std::vector<int32_t> weights;
    for (const double weight : raw)
        weights.push_back(static_cast<int32_t>(std::clamp(weight / sum * most, -0x1p23, 0x1p23 - 1)));
    return weights;
}

AxisWeights of_a_resize(Draws& draws, int& columns, Filter filter) {
    AxisResize axis;
    columns = between(draws, 1, 700);
    const int low = between(draws, 0, columns - 1), high = between(draws, low + 1, columns);
    axis.low = low;
    axis.high = high;
    axis.clip_low = low;
    axis.clip_high = high;
    axis.virtual_size = between(draws, 1, 300);
    axis.first = between(draws, 0, axis.virtual_size - 1);
    axis.count = between(draws, 1, axis.virtual_size - axis.first);
    AxisWeights weights;
    compute_weights(filter, axis, weights);
    return weights;
}

AxisWeights of_random_taps(Draws& draws, int& columns) {
    AxisWeights weights;
    weights.taps = between(draws, 1, 40);
    columns = weights.taps + between(draws, 0, 300);
    const int width = between(draws, 1, 300);
    for (int i = 0; i < width; ++i) {
        weights.start.push_back(between(draws, 0, columns - weights.taps));
        weights.length.push_back(weights.taps);
        for (const int32_t weight : random_weights(draws, weights.taps)) weights.weight.push_back(weight);
    }
    std::sort(weights.start.begin(), weights.start.end());
    weights.start.front() = 0;
    weights.start.back() = width > 1 ? columns - weights.taps : 0;
    if (width == 1) columns = weights.taps;
    return weights;
}

AxisWeights of_a_resize(Draws& draws, int& columns) {
    return of_a_resize(draws, columns, static_cast<Filter>(draws.below(6)));
}

void check_horizontal(const Kernels& kernels, Draws& draws) {
    for (int i = 0; i < kPlans; ++i) {
        int columns = 0;
        const AxisWeights weights = i % 2 ? of_a_resize(draws, columns) : of_random_taps(draws, columns);
        const int origin = weights.begin(), width = weights.end() - origin;
        const bool mirror = draws.below(2);
        HorizontalPlan scalar, plan;
        const int channels = 1 + i / 2 % kMostChannels;
        const auto pixel = static_cast<size_t>(channels);
        scalar.prepare(weights, origin, width, channels, mirror, kScalarKernels.splits);
        plan.prepare(weights, origin, width, channels, mirror, kernels.splits);
        const size_t bytes = pixel * static_cast<size_t>(width) + kSlack;
        const std::vector<uint8_t> rows[2] = {random_bytes(draws, bytes), random_bytes(draws, bytes)};
        const uint8_t* const from[2] = {rows[0].data(), rows[1].data()};
        const Output blank(pixel * static_cast<size_t>(plan.width), kSlack);
        std::vector<Output> want(2, blank), got = want;
        uint8_t* const want_rows[2] = {want[0].all.data(), want[1].all.data()};
        uint8_t* const got_rows[2] = {got[0].all.data(), got[1].all.data()};
        kScalarKernels.horizontal(from, scalar.pass(), want_rows);
        kernels.horizontal(from, plan.pass(), got_rows);
        for (size_t r = 0; r < 2; ++r)
            got[r].expect(want[r], kernels.name,
                          "horizontal, " + std::to_string(plan.width) + " outputs of " +
                              std::to_string(plan.taps) + " taps of " + std::to_string(channels) +
                              " channels");
    }
}

void check_vertical(const Kernels& kernels, Draws& draws) {
    for (int i = 0; i < kRows; ++i) {
        const int taps = between(draws, 1, 40);
        const auto bytes = static_cast<size_t>(between(draws, 1, 900));
        const std::vector<int32_t> weights = random_weights(draws, taps);
        std::vector<std::vector<uint8_t>> rows;
        std::vector<const uint8_t*> pointers;
        for (int t = 0; t < taps; ++t) rows.push_back(random_bytes(draws, bytes + kSlack));
        for (const auto& row : rows) pointers.push_back(row.data());
        Output want(bytes, kSlack), got = want;
        kScalarKernels.vertical(pointers.data(), weights.data(), taps, bytes, want.all.data());
        kernels.vertical(pointers.data(), weights.data(), taps, bytes, got.all.data());
        got.expect(want, kernels.name,
                   "vertical, " + std::to_string(bytes) + " bytes of " + std::to_string(taps) + " rows");
    }
}

void check_separate(const Kernels& kernels, Draws& draws) {
    for (int i = 0; i < kWidths * kMostChannels; ++i) {
        const int width = 1 + i / kMostChannels, channels = 1 + i % kMostChannels;
        const auto plane = static_cast<size_t>(width), count = static_cast<size_t>(channels);
        const std::vector<uint8_t> pixels = random_bytes(draws, count * plane + kSlack);
        std::vector<Output> want(kMostChannels, Output(plane, kSlack)), got = want;
        uint8_t *want_planes[kMostChannels], *got_planes[kMostChannels];
        for (size_t c = 0; c < kMostChannels; ++c) {
            want_planes[c] = want[c].all.data();
            got_planes[c] = got[c].all.data();
        }
        kScalarKernels.separate(pixels.data(), width, channels, want_planes);
        kernels.separate(pixels.data(), width, channels, got_planes);
        for (size_t c = 0; c < count; ++c)
            got[c].expect(want[c], kernels.name, "separate, width " + std::to_string(width));
    }
}

void check_linear_across(const Kernels& kernels, Draws& draws) {
    for (int i = 0; i < kRows; ++i) {
        int columns = 0;
        const AxisWeights weights = of_a_resize(draws, columns, Filter::opencv_bilinear);
        const int origin = weights.begin(), width = weights.end() - origin, channels = 1 + i % kMostChannels;
        HorizontalPlan plan;
        plan.prepare(weights, origin, width, channels, draws.below(2), false);
        const auto row = random_bytes(draws, static_cast<size_t>(channels * width) + kSlack);
        Output want(sizeof(int16_t) * static_cast<size_t>(channels * plan.width), kSlack), got = want;
        kScalarKernels.linear_across(row.data(), plan.pass(), reinterpret_cast<int16_t*>(want.all.data()));
        kernels.linear_across(row.data(), plan.pass(), reinterpret_cast<int16_t*>(got.all.data()));
        got.expect(want, kernels.name, "linear_across, " + std::to_string(channels) + " channels");
    }
}

// Checks grey levels, also in place, as JPEGs are converted.
void check_interpolate(const Kernels& kernels, Draws& draws) {
    for (int i = 0; i < kRows; ++i) {
        const int height = between(draws, 1, 40), width = between(draws, 1, 40),
                  channels = between(draws, 1, 4);
        const int count = between(draws, 0, 70), most = draws.below(8) ? 48 : 1 << 20;
        const auto pixels = random_bytes(draws, static_cast<size_t>(height * width * channels));
        const auto fill = random_bytes(draws, kMostChannels);
        std::vector<int32_t> x(static_cast<size_t>(count)), y(x.size());
        for (auto* places : {&x, &y})
            for (int32_t& place : *places) place = between(draws, -32 * most / 8, 32 * most);
        const WarpSource from{pixels.data(), height, width, channels, fill.data()};
        Output want(static_cast<size_t>(count * channels), 0), got = want;
        kScalarKernels.interpolate(from, x.data(), y.data(), count, want.all.data());
        kernels.interpolate(from, x.data(), y.data(), count, got.all.data());
        got.expect(want, kernels.name, "interpolate, " + std::to_string(channels) + " channels");
    }
}

void check_divide_places(const Kernels& kernels, Draws& draws) {
    for (int i = 0; i < kRows; ++i) {
        const auto number = [&] { return draws.uniform(-1, 1) * std::pow(10, between(draws, -3, 9)); };
        const double depth = draws.below(4) ? 1 : draws.below(2) ? 0 : number();
        const double step_depth = draws.below(4) ? draws.uniform(-2e-3, 2e-3) : draws.below(2) ? 0 : -1;
        const PlaceRow row{number(),
                           number(),
                           depth,
                           number(),
                           number(),
                           step_depth,
                           draws.below(2) ? 32.0 : 1.0,
                           0x1p25,
                           between(draws, 0, 1 << 20),
                           32};
        const int first = between(draws, 0, 1000), count = between(draws, 0, 256);
        const auto bytes = sizeof(int32_t) * static_cast<size_t>(count), slack = 3 * sizeof(int32_t);
        Output want_x(bytes, slack), want_y = want_x, got_x = want_x, got_y = want_x;
        const auto places = [](Output& each) { return reinterpret_cast<int32_t*>(each.all.data()); };
        kScalarKernels.divide_places(row, first, count, places(want_x), places(want_y));
        kernels.divide_places(row, first, count, places(got_x), places(got_y));
        got_x.expect(want_x, kernels.name, "divide_places, x");
        got_y.expect(want_y, kernels.name, "divide_places, y");
    }
}

void check_mirror(const Kernels& kernels, Draws& draws) {
    for (int width = 1; width <= kWidths; ++width) {
        const auto count = 3 * static_cast<size_t>(width);
        const auto rgb = random_bytes(draws, count + kSlack);
        Output want(count, 0), got = want;
        kScalarKernels.mirror(rgb.data(), width, want.all.data());
        kernels.mirror(rgb.data(), width, got.all.data());
        got.expect(want, kernels.name, "mirror, width " + std::to_string(width));
    }
}

void check_gain_hsv(const Kernels& kernels, Draws& draws) {
    for (int i = 0; i < kRows; ++i) {
        const auto count = static_cast<size_t>(between(draws, 0, 200));
        const auto factor = [&] { return static_cast<float>(draws.below(65537)) * 0x1p-15F; };
        const HsvGains gains{static_cast<float>(draws.below(180)), factor(), factor()};
        const auto rgb = random_bytes(draws, 3 * count);
        Output want(3 * count, 0);
        std::copy(rgb.begin(), rgb.end(), want.all.begin());
        Output got = want;
        kScalarKernels.gain_hsv(want.all.data(), count, gains);
        kernels.gain_hsv(got.all.data(), count, gains);
        got.expect(want, kernels.name, "gain_hsv");
    }
}

void check_to_grey(const Kernels& kernels, Draws& draws) {
    for (int width = 1; width <= kWidths; ++width) {
        const auto count = static_cast<size_t>(width);
        std::vector<uint8_t> rgb = random_bytes(draws, 3 * count + kSlack);
        Output want(count, kSlack), got = want, in_place = want;
        kScalarKernels.to_grey(rgb.data(), width, want.all.data());
        kernels.to_grey(rgb.data(), width, got.all.data());
        got.expect(want, kernels.name, "grey levels, width " + std::to_string(width));
        kernels.to_grey(rgb.data(), width, rgb.data());
        std::copy_n(rgb.begin(), count, in_place.all.begin());
        in_place.expect(want, kernels.name, "grey levels in place, width " + std::to_string(width));
    }
}

// The scalar ones are compared with others, and those of several channels with one channel's.
void check_channels(const Kernels& kernels, Draws& draws) {
    for (int i = 0; i < kPlans / 8; ++i) {
        int columns = 0;
        const AxisWeights weights = of_a_resize(draws, columns);
        const int origin = weights.begin(), width = weights.end() - origin;
        HorizontalPlan one;
        one.prepare(weights, origin, width, 1, false, kernels.splits);
        const std::vector<uint8_t> grey = random_bytes(draws, static_cast<size_t>(width) + kSlack);
        const uint8_t* const from[2] = {grey.data(), grey.data()};
        const auto outputs = static_cast<size_t>(one.width);
        std::vector<Output> want(2, Output(outputs, kSlack));
        uint8_t* const want_rows[2] = {want[0].all.data(), want[1].all.data()};
        kernels.horizontal(from, one.pass(), want_rows);
        for (size_t channels = 2; channels <= kMostChannels; ++channels) {
            std::vector<uint8_t> pixels;
            for (const uint8_t level : grey) pixels.insert(pixels.end(), channels, level);
            HorizontalPlan plan;
            plan.prepare(weights, origin, width, static_cast<int>(channels), false, kernels.splits);
            std::vector<Output> got(2, Output(outputs * channels, kSlack));
            uint8_t* const got_rows[2] = {got[0].all.data(), got[1].all.data()};
            const uint8_t* const rows[2] = {pixels.data(), pixels.data()};
            kernels.horizontal(rows, plan.pass(), got_rows);
            for (size_t k = 0; k < outputs * channels; ++k)
                if (got[1].all[k] != want[0].all[k / channels])
                    fail(kernels.name, std::to_string(channels) + " equal channels differ from one");
        }
    }
}

// Straight into the slot, where another row follows: not a byte behind may be written.
template <typename Value>
void check_look_up(const Kernels& kernels, Draws& draws,
                   void (*Kernels::*look_up)(const uint8_t*, int, const Value*, Value*) noexcept) {
    std::vector<Value> table(256);
    for (Value& value : table) value = static_cast<Value>(draws.word() >> 48);
    for (int width = 1; width <= kWidths; ++width) {
        const auto count = static_cast<size_t>(width);
        const std::vector<uint8_t> bytes = random_bytes(draws, count + kSlack);
        Output want(count * sizeof(Value), 0), got = want;
        (kScalarKernels.*look_up)(bytes.data(), width, table.data(),
                                  reinterpret_cast<Value*>(want.all.data()));
        (kernels.*look_up)(bytes.data(), width, table.data(), reinterpret_cast<Value*>(got.all.data()));
        got.expect(want, kernels.name, "look-up, width " + std::to_string(width));
    }
}

void check(const Kernels& kernels) {
    Draws draws(1);
    check_horizontal(kernels, draws);
    check_vertical(kernels, draws);
    check_separate(kernels, draws);
    check_to_grey(kernels, draws);
    check_interpolate(kernels, draws);
    check_linear_across(kernels, draws);
    check_divide_places(kernels, draws);
    check_mirror(kernels, draws);
    check_gain_hsv(kernels, draws);
    check_channels(kernels, draws);
    check_look_up<float>(kernels, draws, &Kernels::look_up_f32);
    check_look_up<uint16_t>(kernels, draws, &Kernels::look_up_f16);
    std::printf("%s\n", kernels.name);
}

void check_checksum(const ChecksumPath& path) {
    Draws draws(7);
    for (size_t count = 0; count < kWidths; ++count) {
        const auto bytes = random_bytes(draws, count);
        if (path.take(bytes) != checksum_path("table")->take(bytes))
            fail(path.name, "another checksum of " + std::to_string(count) + " bytes");
    }
}

}  // namespace
}  // namespace standpipe

int main() {
    using namespace standpipe;
    for (const char* name : {"sse4.2", "armv8"})
        if (const ChecksumPath* path = checksum_path(name)) check_checksum(*path);
    for (const char* name : {"scalar", "avx2", "avx512", "neon"})
        if (const Kernels* kernels = kernels_named(name)) check(*kernels);
    return 0;
}
