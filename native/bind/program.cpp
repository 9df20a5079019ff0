// Binds the description of an image's transforms: stages, the format of rows, and the program of both.
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "bind/bind.h"
#include "image/rows.h"

namespace standpipe {
namespace {

template <typename Value>
using Table = nb::ndarray<const Value, nb::shape<-1, 256>, nb::c_contig, nb::device::cpu>;

// Returns an enumerator by its number, which is its position in Python's list of names.
template <typename Enum>
Enum numbered(int number, Enum last) {
    if (number < 0 || number > static_cast<int>(last))
        throw nb::value_error(("there is no mode or filter " + std::to_string(number)).c_str());
    return static_cast<Enum>(number);
}

Filter filter_of(int number) { return numbered(number, Filter::lanczos); }

using Sides = std::tuple<int, int, int, int>;  // left, top, right, bottom
using Pair = std::pair<double, double>;

Padding padding_of(const Sides& sides, int mode, const Colour& fill) {
    const auto [left, top, right, bottom] = sides;
    for (const int side : {left, top, right, bottom})
        if (side < 0 || side > kMostPx)
            throw nb::value_error(("padding must be from 0 to " + std::to_string(kMostPx)).c_str());
    return {left, top, right, bottom, numbered(mode, PadMode::symmetric), fill};
}

// Mirrors that a stage has already come before the step that is added.
GeometryStage& after_mirrors(GeometryStage& stage) {
    stage.early_mirrors.insert(stage.early_mirrors.end(), stage.mirrors.begin(), stage.mirrors.end());
    stage.mirrors.clear();
    return stage;
}

int channels_of(size_t number) {
    if (number < 1 || number > kMostChannels) throw nb::value_error("channels: from 1 to 4");
    return static_cast<int>(number);
}

const Kernels* chosen_kernels(const std::optional<std::string>& simd) {
    const Kernels* kernels = simd ? kernels_named(simd->c_str()) : &best_kernels();
    if (!kernels) throw nb::value_error(("this machine doesn't run " + *simd).c_str());
    return kernels;
}

// Returns the channels of a picture after all passes.
int channels_after(const std::vector<Pass>& passes, int channels) {
    for (const Pass& pass : passes)
        for (const PixelStage& pixels : pass.pixels)
            if (pixels.kind == &kToGrey && channels == 3) channels = 1;
    return channels;
}

std::shared_ptr<Program> program_of(std::vector<Input> inputs, std::vector<Head> heads,
                                    const std::optional<std::string>& simd) {
    const bool in_order = std::ranges::is_sorted(heads, {}, &Head::input);
    if (inputs.empty() || heads.empty() || !in_order || heads.back().input >= inputs.size())
        throw nb::value_error("heads: at least one, in the order of the inputs of which they are made");
    for (const Head& head : heads)
        if (channels_after(head.passes, inputs[head.input].channels) != head.format.channels)
            throw nb::value_error("heads: a format has another number of channels than its stages make");
    for (Head& head : heads) {
        const int grid = inputs[head.input].grid;
        for (Pass& pass : head.passes) pass.geometry.grid = grid;
        head.erasing.grid = grid;
        if (head.twin &&
            (*head.twin >= heads.size() || heads[*head.twin].format.row_bytes() != head.format.row_bytes()))
            throw nb::value_error("heads: twins have rows of one size");
    }
    // Heads that draw the same numbers have the same window.
    std::vector<std::tuple<uint64_t, uint32_t, uint32_t>> drawn;
    for (Head& head : heads)
        for (Pass& pass : head.passes) {
            if (!pass.geometry.crop_by_boxes) continue;
            const std::tuple own(head.salt, pass.geometry.chance.op, pass.geometry.crop_by_boxes->op);
            const auto found = std::ranges::find(drawn, own);
            pass.geometry.crop_by_boxes->number = static_cast<size_t>(found - drawn.begin());
            if (found == drawn.end()) drawn.push_back(own);
        }
    auto program = std::make_shared<Program>();
    program->windows = drawn.size();
    program->inputs = std::move(inputs);
    program->heads = std::move(heads);
    program->kernels = chosen_kernels(simd);
    return program;
}

void bind_stages(nb::module_& m) {
    m.attr("MOST_PX") = kMostPx;
    m.attr("MOST_ZOOM") = kMostZoom;
    m.attr("MOST_SHUFFLED") = kMostShuffled;
    m.attr("MOST_CHAINS") = kMostChains;
    m.attr("MOST_CHANNELS") = kMostChannels;
    m.def("other_kind", &other_kind, "channels"_a, "first"_a,
          "Return the error of an image that isn't of the first record's kind.");
    m.attr("MOST_KERNEL_PX") = kMostKernel;
    nb::class_<GeometryStage>(m, "GeometryStage", "Adjacent geometric transforms, done in a single pass.")
        .def(nb::init<>())
        .def(
            "zoom_out",
            [](GeometryStage& s, uint32_t op, double p, const Pair& times, const Colour& fill) {
                s.zoom_out = {op, p, times.first, times.second, fill};
                if (!(times.first >= 1 && times.second >= times.first && times.second <= kMostZoom))
                    throw nb::value_error("times: from 1 to MOST_ZOOM");
            },
            "op"_a, "p"_a, "times"_a, "fill"_a,
            "Put the picture at a random place of a larger one. ``times``: the range of its sides.")
        .def(
            "crop",
            [](GeometryStage& s, uint32_t op, std::tuple<double, double> scale,
               std::tuple<double, double> ratio) {
                s.has_crop = true;
                s.crop = {op, std::get<0>(scale), std::get<1>(scale), std::get<0>(ratio), std::get<1>(ratio)};
            },
            "op"_a, "scale"_a, "ratio"_a)
        .def(
            "crop_by_boxes",
            [](GeometryStage& s, uint32_t op, const Pair& scale, const Pair& ratio,
               std::vector<double> overlaps, int trials) {
                if (overlaps.empty()) throw nb::value_error("overlaps: at least one");
                s.crop_by_boxes = {op,           scale.first,         scale.second, ratio.first,
                                   ratio.second, std::move(overlaps), trials};
            },
            "op"_a, "scale"_a, "ratio"_a, "overlaps"_a, "trials"_a,
            "Crop a window that boxes decide: ``trace`` draws it, and rows are made with it.")
        .def(
            "resize",
            [](GeometryStage& s, int height, int width, int filter) {
                after_mirrors(s).resize = GeometryStage::Resize::exact;
                s.target = {height, width};
                s.filter = filter_of(filter);
            },
            "height"_a, "width"_a, "filter"_a)
        .def(
            "resize_shorter",
            [](GeometryStage& s, uint32_t op, int first, int end, int max_size, int filter) {
                if (first < 1 || end <= first)
                    throw nb::value_error("sizes must be above 0, and end above first");
                after_mirrors(s).resize = GeometryStage::Resize::shorter_side;
                s.target = {first, first};
                s.random_end = end;
                s.max_size = max_size;
                s.resize_op = op;
                s.filter = filter_of(filter);
            },
            "op"_a, "first"_a, "end"_a, "max_size"_a, "filter"_a,
            "Resize the shorter side to a random length from ``first`` to ``end`` - 1, in pixels.\n"
            "``max_size``: most of the longer one; 0: no limit.")
        .def(
            "resize_jitter",
            [](GeometryStage& s, uint32_t op, int height, int width, const Pair& scale, int filter) {
                after_mirrors(s).resize = GeometryStage::Resize::jitter;
                s.target = {height, width};
                s.scale_low = scale.first;
                s.scale_high = scale.second;
                s.resize_op = op;
                s.filter = filter_of(filter);
            },
            "op"_a, "height"_a, "width"_a, "scale"_a, "filter"_a,
            "Resize both sides by one factor: what fits into the target, times a random number in ``scale``.")
        .def(
            "resize_listed",
            [](GeometryStage& s, uint32_t op, std::vector<int> lengths, int max_size, int filter) {
                if (lengths.empty()) throw nb::value_error("lengths: at least one");
                after_mirrors(s).resize = GeometryStage::Resize::listed;
                s.lengths = std::move(lengths);
                s.max_size = max_size;
                s.resize_op = op;
                s.filter = filter_of(filter);
            },
            "op"_a, "lengths"_a, "max_size"_a, "filter"_a,
            "Resize the shorter side to one of ``lengths``. ``max_size``: most of the longer one; 0: no "
            "limit.")
        .def(
            "resize_to_fit",
            [](GeometryStage& s, int height, int width, bool only_smaller, bool round_up, bool nearest) {
                after_mirrors(s).resize = GeometryStage::Resize::fit;
                s.target = {height, width};
                s.only_smaller = only_smaller;
                s.round_up = round_up;
                s.filter = nearest ? Filter::opencv_nearest : Filter::opencv_bilinear;
            },
            "height"_a, "width"_a, "only_smaller"_a, "round_up"_a, "nearest"_a,
            "Resize as OpenCV does to what fits into a size. ``round_up``: fractions of a pixel, else to\n"
            "the nearest integer.")
        .def(
            "random_filter", [](GeometryStage& s, uint32_t op) { s.filter_op = op; }, "op"_a,
            "Choose the resize's filter at random: bilinear or bicubic. ``op`` must be above 0.")
        .def(
            "window",
            [](GeometryStage& s, int place, uint32_t op, const std::pair<int, int>& size, const Sides& sides,
               bool pad_if_needed, int mode, const Colour& fill) {
                after_mirrors(s).has_window = true;
                s.window = {numbered(place, Window::Place::everything),
                            {size.first, size.second},
                            0,
                            0,
                            padding_of(sides, mode, fill),
                            pad_if_needed,
                            op};
            },
            "place"_a, "op"_a = 0, "size"_a = std::pair(0, 0), "sides"_a = Sides(), "pad_if_needed"_a = false,
            "mode"_a = 0, "fill"_a = Colour{},
            "Cut out a window of ``size``, (height, width), of the picture padded by ``sides``: left, top,\n"
            "right and bottom, in pixels. ``place``: as ``WindowPlace`` numbers it.")
        .def(
            "sized_window",
            [](GeometryStage& s, uint32_t op, int low, int high) {
                if (low < 1 || high < low)
                    throw nb::value_error("sizes must be above 0, and high not below low");
                after_mirrors(s).has_window = true;
                s.window = {Window::Place::random, {}, low, high, {}, false, op};
            },
            "op"_a, "low"_a, "high"_a,
            "Cut out a random window, with sides of ``low`` to ``high`` pixels as far as they fit.")
        .def(
            "perhaps", [](GeometryStage& s, uint32_t op, double p) { s.chance = {op, p}; }, "op"_a, "p"_a,
            "Do nothing with probability 1 - ``p``; stages with one ``op`` do nothing together.")
        .def(
            "mirror", [](GeometryStage& s, uint32_t op, double p) { s.mirrors.push_back({op, p}); }, "op"_a,
            "p"_a);
}

void bind_kernel(nb::module_& m) {
    nb::class_<RowFormat>(
        m, "RowFormat",
        "Size, element type and layout of a slot's image rows. Without a size, 0 × 0, it differs\n"
        "from row to row, and each job has its rows' areas.")
        .def_static(
            "uint8",
            [](int height, int width, bool planar, int channels) {
                return RowFormat{height, width, ElementType::u8, planar, {}, {}, channels_of(channels)};
            },
            "height"_a, "width"_a, "planar"_a, "channels"_a = 3)
        .def(
            "pad_with",
            [](RowFormat& format, const nb::bytes& element) {
                if (element.size() == 0 || format.padding.size() % element.size() != 0)
                    throw nb::value_error("element: 1, 2 or 4 bytes");
                for (size_t i = 0; i < format.padding.size(); ++i)
                    format.padding[i] = static_cast<uint8_t>(element.c_str()[i % element.size()]);
            },
            "element"_a,
            "Set what is beside a picture that is smaller than its canvas: the bytes of an element.")
        .def_static(
            "float32",
            [](int height, int width, bool planar, Table<float> table) {
                RowFormat format{height, width, ElementType::f32,           planar,
                                 {},     {},    channels_of(table.shape(0))};
                std::copy_n(table.data(), table.size(), format.f32[0].data());
                return format;
            },
            "height"_a, "width"_a, "planar"_a, "table"_a, "``table``: (channels, 256).")
        .def_static(
            "float16",
            [](int height, int width, bool planar, Table<uint16_t> table) {
                RowFormat format{height, width, ElementType::f16,           planar,
                                 {},     {},    channels_of(table.shape(0))};
                std::copy_n(table.data(), table.size(), format.f16[0].data());
                return format;
            },
            "height"_a, "width"_a, "planar"_a, "table"_a, "``table``: float16 bits, by channel and byte.");

    nb::class_<Erasing>(m, "Erasing", "Rectangles of a finished row that RandomErasing overwrites.")
        .def(nb::new_([](uint32_t op, double p, Pair scale, Pair ratio, std::tuple<int, int> count,
                         const std::string& mode, std::array<float, kMostChannels> value) {
                 const auto [low, high] = scale;
                 const auto [narrow, wide] = ratio;
                 const auto [fewest, most] = count;
                 if (!(low >= 0 && narrow > 0 && fewest >= 1 && most >= fewest))
                     throw nb::value_error("scale, ratio or count is out of range");
                 using enum Erasing::Mode;
                 const Erasing::Mode chosen = mode == "const" ? constant : mode == "rand" ? colour : pixel;
                 return Erasing{op, p, low, high, narrow, wide, fewest, most, chosen, value};
             }),
             "op"_a, "p"_a, "scale"_a, "ratio"_a, "count"_a, "mode"_a, "value"_a);

    nb::class_<Input>(m, "Input", "A field of the records of which a program makes rows.")
        .def(nb::new_([](int kind, int channels, int grid, int decoded, bool fast, uint64_t max_pixels,
                         int max_scans, bool allow_truncated, bool only_libjpeg, bool upright) {
                 const DecodeLimits limits{max_pixels, max_scans, allow_truncated, only_libjpeg,
                                           numbered(decoded, Channels::as_stored)};
                 if (grid < 1) throw nb::value_error("grid: at least 1");
                 return Input{kind, channels_of(static_cast<size_t>(channels)), fast, limits, upright, grid};
             }),
             "kind"_a, "channels"_a, "grid"_a, "decoded"_a, "fast"_a, "max_pixels"_a, "max_scans"_a,
             "allow_truncated"_a = false, "only_libjpeg"_a = false, "upright"_a = false,
             "``kind``: its number; 0: an image. ``channels``: before the stages. ``grid``: pixels of\n"
             "which sizes and places are multiples; inputs' sizes differ as their grids do. ``decoded``:\n"
             "how files get them, by its number in ``ChannelsName``. ``fast``: decode at 1/2, 1/4 or 1/8\n"
             "where that suffices. ``upright``: apply EXIF orientation. ``only_libjpeg``: don't use our\n"
             "entropy decoder.");

    nb::class_<Head>(m, "Head", "One output of a program: the stages that make a row of an input.")
        .def(nb::new_([](size_t input, std::vector<Stage> stages, const RowFormat& format,
                         const std::optional<Erasing>& erasing, uint64_t salt, std::optional<size_t> twin) {
                 return Head{input, passes_of(std::move(stages)), format, erasing.value_or(Erasing{}), salt,
                             twin};
             }),
             "input"_a, "stages"_a, "format"_a, "erasing"_a.none() = nb::none(), "salt"_a = 0,
             "twin"_a.none() = nb::none(),
             "``input``: its number. ``salt``: of its random numbers; 0: they are the sample's own.\n"
             "``twin``: number of the head whose row it writes where it mirrors pixels; None: its own.");

    nb::class_<Program> program(m, "Program", "Image transforms, fused into one kernel that makes rows.");
    program
        .def(nb::new_(&program_of), "inputs"_a, "heads"_a, "simd"_a.none() = nb::none(),
             "``heads``: in the order of their inputs. ``simd``: of ``simd_paths``; None: the fastest.")
        .def_prop_ro(
            "windows", [](const Program& p) { return p.windows; }, "Number of crops that boxes decide.")
        .def_prop_ro("simd", [](const Program& p) { return p.kernels->name; });
    bind_trace(program);
}

}  // namespace

void bind_program(nb::module_& m) {
    bind_stages(m);
    bind_pixel_stages(m);
    bind_kernel(m);
}

}  // namespace standpipe
