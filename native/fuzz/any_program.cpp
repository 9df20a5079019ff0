#include "fuzz/any_program.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "pixels/operations.h"

namespace standpipe {
namespace {

constexpr int kMostSide = 48, kMostDepth = 2;
constexpr double kNearest = 0;

// One of n.
bool seldom(Draws& draws, uint64_t n) noexcept { return draws.below(n) == 0; }

int any_int(Draws& draws, int low, int high) noexcept {
    return low + static_cast<int>(draws.below(static_cast<uint64_t>(high - low) + 1));
}

Size any_size(Draws& draws) noexcept { return {any_int(draws, 1, kMostSide), any_int(draws, 1, kMostSide)}; }

// Of the colour outside.
uint8_t any_level(Draws& draws, bool is_mask) noexcept {
    return is_mask ? kMaskOutside : static_cast<uint8_t>(draws.below(256));
}

uint32_t any_op(Draws& draws) noexcept { return draws.below(8); }

Padding any_padding(Draws& draws, bool is_mask) noexcept {
    const int most = seldom(draws, 4) ? 2 * kMostSide : 5;  // several times around a small picture, too
    Padding padding;
    for (int* side : {&padding.left, &padding.top, &padding.right, &padding.bottom})
        *side = seldom(draws, 3) ? 0 : any_int(draws, 0, most);
    padding.mode = static_cast<PadMode>(draws.below(4));
    for (uint8_t& level : padding.fill) level = any_level(draws, is_mask);
    return padding;
}

void set_resize(GeometryStage& stage, GeometryStage::Resize resize, Draws& draws) noexcept {
    stage.resize = resize;
    stage.target = any_size(draws);
    stage.resize_op = any_op(draws);
    if (resize == GeometryStage::Resize::jitter) {
        stage.scale_low = draws.uniform(0.01, 2);
        stage.scale_high = draws.uniform(stage.scale_low, 3);
    }
    stage.only_smaller = draws.below(2);
    stage.round_up = draws.below(2);
    for (uint64_t i = 1 + draws.below(3); i > 0 && resize == GeometryStage::Resize::listed; --i)
        stage.lengths.push_back(any_int(draws, 1, kMostSide));
    if (resize != GeometryStage::Resize::shorter_side && resize != GeometryStage::Resize::listed) return;
    stage.max_size = stage.target.height + any_int(draws, 1, 4 * kMostSide);  // stages take their time
    if (seldom(draws, 3)) stage.random_end = stage.target.height + any_int(draws, 1, kMostSide);
}

// The size of its result where that is the same for all pictures; else {0, 0}.
Size set_window(GeometryStage& stage, bool is_mask, Draws& draws) noexcept {
    const Size whole = stage.resize == GeometryStage::Resize::exact ? stage.target : Size{};
    stage.has_window = !seldom(draws, 3);
    if (!stage.has_window) return whole;
    Window& window = stage.window;
    window.place = static_cast<Window::Place>(draws.below(4));
    window.size = any_size(draws);
    window.padding = any_padding(draws, is_mask);
    window.op = any_op(draws);
    window.pad_if_needed = !seldom(draws, 3);
    if (window.place == Window::Place::random && seldom(draws, 4)) {
        window.low = any_int(draws, 1, kMostSide);
        window.high = any_int(draws, window.low, 2 * kMostSide);
        window.pad_if_needed = false;
        return {};
    }
    if (window.place != Window::Place::everything) return window.size;
    return whole.height == 0 ? Size{} : padded(window, whole);
}

GeometryStage any_geometry(Draws& draws, bool is_mask, Size& size) {
    GeometryStage stage;
    if (seldom(draws, 3)) {
        stage.zoom_out = {
            any_op(draws), draws.uniform(0.3, 1.3), draws.uniform(1, 1.5), draws.uniform(1.5, 4), {}};
        for (uint8_t& level : stage.zoom_out.fill) level = any_level(draws, is_mask);
    }
    stage.has_crop = seldom(draws, 3);
    if (!stage.has_crop && seldom(draws, 3)) {
        stage.crop_by_boxes.emplace();
        stage.crop_by_boxes->op = any_op(draws);
        stage.crop_by_boxes->overlaps = {draws.uniform(0, 1.1), draws.uniform(0, 1.1)};
    }
    for (uint64_t i = draws.below(3); i > 0; --i) stage.early_mirrors.push_back({any_op(draws), 0.5});
    stage.crop.op = any_op(draws);
    stage.crop.scale_low = draws.uniform(0.01, 1);
    set_resize(stage, static_cast<GeometryStage::Resize>(draws.below(6)), draws);
    stage.filter = is_mask ? Filter::nearest : static_cast<Filter>(draws.below(8));
    if (!is_mask && seldom(draws, 4)) stage.filter_op = any_op(draws);
    size = set_window(stage, is_mask, draws);
    for (uint64_t i = draws.below(3); i > 0; --i) stage.mirrors.push_back({any_op(draws), 0.5});
    return stage;
}

// Interpolation, and the colour outside.
void set_sampling(std::vector<double>& numbers, size_t at, bool is_mask, Draws& draws) {
    numbers[at] = is_mask ? kNearest : draws.below(5);
    for (size_t i = 1; i <= kMostChannels; ++i) numbers[at + i] = any_level(draws, is_mask);
}

// And whether there is a centre, and where.
void set_centre(std::vector<double>& numbers, size_t at, Draws& draws) {
    numbers[at] = draws.below(2);
    for (size_t i = 1; i <= 2; ++i) numbers[at + i] = draws.uniform(-3.0 * kMostSide, 3.0 * kMostSide);
}

void set_range(std::vector<double>& numbers, size_t at, double low, double high, Draws& draws) {
    numbers[at] = draws.uniform(low, high);
    numbers[at + 1] = draws.uniform(numbers[at], high);
}

void set_affine(std::vector<double>& n, bool is_mask, Draws& draws) {
    const double most = seldom(draws, 8) ? 1e6 : 1.5 * kMostSide;
    for (const size_t i : {0, 4}) n[i] = seldom(draws, 3) ? 1 : draws.uniform(-2, 2);
    for (const size_t i : {1, 3}) n[i] = seldom(draws, 2) ? 0 : draws.uniform(-2, 2);
    for (const size_t i : {2, 5})
        n[i] = seldom(draws, 2) ? std::floor(draws.uniform(-most, most)) : draws.uniform(-most, most);
    for (size_t i = 6; i < 10; ++i) n[i] = any_level(draws, is_mask);
    n[10] = is_mask ? kNearest : draws.below(5);
}

void set_random_affine(std::vector<double>& n, bool is_mask, Draws& draws) {
    set_range(n, 0, -360, 360, draws);
    const double least = seldom(draws, 8) ? 1e-9 : 0.1;
    set_range(n, 2, least, seldom(draws, 8) ? 10 * least : 4, draws);
    for (const size_t i : {4, 6}) {
        set_range(n, i, -180, 180, draws);
        if (seldom(draws, 8)) n[i] = n[i + 1] = 90;  // its tangent is huge
    }
    for (const size_t i : {8, 9}) n[i] = draws.uniform();
    set_sampling(n, 10, is_mask, draws);
    set_centre(n, 15, draws);
    n[18] = seldom(draws, 2) ? 0 : draws.uniform(0, 0.1);
}

void set_level(std::vector<double>& n, bool is_mask, Draws& draws) {
    n[0] = draws.below(25);
    n[1] = draws.uniform(0, 10);
    n[2] = static_cast<double>(draws.below(3)) - 1;
    n[3] = 10;
    n[4] = draws.below(4);
    for (size_t i = 5; i < 9; ++i) n[i] = any_level(draws, is_mask);
    n[9] = draws.uniform();
}

std::vector<double> any_parameters(const PixelKind& kind, bool is_mask, Draws& draws) {
    const std::string_view name = kind.name;
    std::vector<double> n(kind.parameters);
    for (double& each : n) each = draws.uniform(0, name == "hsv" ? 1 : 3);
    if (name == "affine") set_affine(n, is_mask, draws);
    else if (name == "random_affine") set_random_affine(n, is_mask, draws);
    else if (name == "level") set_level(n, is_mask, draws);
    else if (name == "posterize") n[0] = draws.below(9);
    else if (name == "solarize") n[0] = draws.below(257);
    else if (name == "hue") set_range(n, 0, -0.5, 0.5, draws);
    else if (name == "perspective") {
        n[0] = draws.uniform();
        set_sampling(n, 1, is_mask, draws);
    } else if (name == "rotation") {
        set_range(n, 0, -720, 720, draws);
        set_sampling(n, 2, is_mask, draws);
        set_centre(n, 7, draws);
    } else if (name == "pillow_blur") {
        set_range(n, 0, 0, 50, draws);
    } else if (name == "gaussian_blur") {
        n[0] = 2 * any_int(draws, 0, 12) + 1;
        set_range(n, 1, 0.1, 5, draws);
    }
    return n;
}

PixelStage any_pixels(Draws& draws, bool is_mask, int depth) {
    PixelStage stage;
    stage.op = any_op(draws);
    stage.p = seldom(draws, 3) ? 0.5 : 1;
    if (depth == kMostDepth || !seldom(draws, 3)) {
        stage.kind = pixel_kinds()[draws.below(pixel_kinds().size() - 1)];  // the last takes channels away
        stage.parameters = any_parameters(*stage.kind, is_mask, draws);
        const bool is_affine = stage.kind->name == std::string_view("random_affine");
        if (is_affine && depth == 0 && sampling_in(stage, 10) >= Sampling::fixed_nearest &&
            seldom(draws, 2)) {
            stage.p = 1;
            stage.height = any_int(draws, 1, kMostSide);
            stage.width = any_int(draws, 1, kMostSide);
        }
        return stage;
    }
    constexpr const PixelKind* kGroups[] = {&kChoice, &kShuffle, &kMixture};
    stage.kind = kGroups[draws.below(3)];
    stage.lists.resize(stage.kind == &kMixture ? 1 : 1 + draws.below(3));
    for (auto& list : stage.lists)
        for (uint64_t i = draws.below(3); i > 0; --i) list.push_back(any_pixels(draws, is_mask, depth + 1));
    if (stage.kind == &kMixture)
        stage.parameters = {draws.uniform(0.01, 3), any_int(draws, 1, 3) * 1.0, any_int(draws, 0, 1) * 1.0};
    if (stage.kind != &kChoice) return stage;
    for (size_t i = 0; i < stage.lists.size(); ++i) stage.parameters.push_back(draws.uniform());
    std::ranges::sort(stage.parameters);
    return stage;
}

Erasing any_erasing(Draws& draws, ElementType type) noexcept {
    Erasing erasing;
    erasing.op = any_op(draws);
    erasing.p = draws.uniform(0.3, 1.3);
    erasing.scale_low = draws.uniform(0, 0.5);
    erasing.scale_high = draws.uniform(erasing.scale_low, 1.2);
    erasing.ratio_low = draws.uniform(0.1, 1);
    erasing.ratio_high = draws.uniform(erasing.ratio_low, 10);
    erasing.max_count = erasing.min_count + any_int(draws, 0, 3);
    if (type != ElementType::u8) erasing.mode = static_cast<Erasing::Mode>(draws.below(3));
    for (float& each : erasing.value) each = static_cast<float>(draws.below(256));
    return erasing;
}

RowFormat any_format(Draws& draws, bool is_mask, int channels, Size size) {
    RowFormat format;
    format.channels = channels;
    format.height = size.height;
    format.width = size.width;
    int& side = seldom(draws, 2) ? format.height : format.width;
    if (seldom(draws, 16)) side += seldom(draws, 2) && side > 1 ? -1 : 1;
    if (is_mask) return format;
    format.type = static_cast<ElementType>(draws.below(3));
    format.planar = seldom(draws, 2);
    for (size_t c = 0; c < kMostChannels; ++c)
        for (size_t i = 0; i < 256; ++i) {
            format.f32[c][i] = static_cast<float>(i) / 64 - static_cast<float>(c);
            format.f16[c][i] = static_cast<uint16_t>(i * 5 + c);
        }
    return format;
}

Head any_head(Draws& draws, bool is_mask, int channels, bool has_pixels) {
    std::vector<Stage> stages;
    Size size;
    const uint64_t passes = 1 + draws.below(3);
    if (has_pixels && !is_mask && channels == 3 && seldom(draws, 8)) {
        stages.emplace_back(PixelStage{&kToGrey, any_op(draws), 1, {}, {}});
        channels = 1;
    }
    for (uint64_t i = 0; i < passes; ++i) {
        for (uint64_t k = has_pixels ? draws.below(3) : 0; k > 0; --k)
            stages.emplace_back(any_pixels(draws, is_mask, 0));
        GeometryStage stage = any_geometry(draws, is_mask, size);
        if (i + 1 == passes && size.height == 0) {  // a row has the same size for all pictures
            set_resize(stage, GeometryStage::Resize::exact, draws);
            stage.has_window = stage.has_window && stage.window.high == 0;
            size = stage.has_window ? padded(stage.window, stage.target) : stage.target;
        }
        if (i + 1 < passes && seldom(draws, 4)) stage.chance = {1 + any_op(draws), 0.5};
        stages.emplace_back(std::move(stage));
    }
    if (has_pixels && seldom(draws, 2)) stages.emplace_back(any_pixels(draws, is_mask, 0));
    Head head;
    head.passes = passes_of(std::move(stages));
    head.format = any_format(draws, is_mask, channels, size);
    if (!is_mask && seldom(draws, 2)) head.erasing = any_erasing(draws, head.format.type);
    return head;
}

Input any_input(Draws& draws, const DecodeLimits& limits) {
    Input input{seldom(draws, 4), 1, seldom(draws, 3), limits, seldom(draws, 4)};
    if (input.is_exact()) return input;
    input.limits.channels = seldom(draws, 2) ? Channels::rgb : static_cast<Channels>(draws.below(4));
    const bool is_grey = input.limits.channels == Channels::l || input.limits.channels == Channels::luma;
    input.channels = is_grey ? 1 : input.limits.channels == Channels::rgba ? 4 : 3;
    return input;
}

}  // namespace

Program any_program(Draws& draws, const DecodeLimits& limits, bool has_pixels) {
    Program program;
    program.heads.clear();
    program.inputs.resize(seldom(draws, 3) ? 2 : 1);
    for (size_t input = 0; input < program.inputs.size(); ++input) {
        Input& from = program.inputs[input];
        from = any_input(draws, limits);
        for (uint64_t i = seldom(draws, 2) ? 1 : 2 + draws.below(3); i > 0; --i) {
            program.heads.push_back(any_head(draws, from.is_exact(), from.channels, has_pixels));
            program.heads.back().input = input;
            program.heads.back().salt = draws.below(3);
        }
    }
    for (Head& head : program.heads)
        for (Pass& pass : head.passes)
            if (pass.geometry.crop_by_boxes) pass.geometry.crop_by_boxes->number = program.windows++;
    return program;
}

}  // namespace standpipe
