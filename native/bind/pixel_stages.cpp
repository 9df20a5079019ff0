// Binds the stages that change the pixels of a whole picture.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "bind/bind.h"
#include "image/geometry.h"
#include "pixels/operations.h"

namespace standpipe {
namespace {

void check_size(const PixelStage& stage) {
    if (stage.height == 0 && stage.width == 0) return;
    const bool may = stage.p == 1 && std::string_view(stage.kind->name) == "random_affine" &&
                     sampling_in(stage, 10) >= Sampling::fixed_nearest;
    const auto [least, most] = std::minmax(stage.height, stage.width);
    if (!may || least < 1 || most > kMostPx)
        throw nb::value_error("only a random_affine with OpenCV's pixels has a size");
}

void check_lists(const std::vector<std::vector<PixelStage>>& lists) {
    for (const auto& list : lists)
        for (const PixelStage& each : list)
            if (each.height > 0) throw nb::value_error("a stage of a group can't change the size");
}

}  // namespace

void bind_pixel_stages(nb::module_& m) {
    nb::class_<PixelStage>(m, "PixelStage", "Changes the pixels of a whole picture in place.")
        .def(
            nb::new_([](const std::string& kind, uint32_t op, double p, std::vector<double> parameters,
                        int height, int width) {
                const PixelKind* known = pixel_kind_named(kind);
                if (!known) throw nb::value_error(("there is no pixel stage " + kind).c_str());
                if (parameters.size() != known->parameters)
                    throw nb::value_error(
                        (kind + " takes " + std::to_string(known->parameters) + " parameters").c_str());
                PixelStage stage{known, op, p, std::move(parameters), {}, height, width};
                check_size(stage);
                return stage;
            }),
            "kind"_a, "op"_a, "p"_a, "parameters"_a, "height"_a = 0, "width"_a = 0,
            "``height``, ``width``: of the result of a random_affine with OpenCV's pixels; 0: the picture's.")
        .def_static(
            "choice",
            [](uint32_t op, double p, std::vector<double> weights,
               std::vector<std::vector<PixelStage>> lists) {
                if (lists.empty() || weights.size() != lists.size())
                    throw nb::value_error("a choice takes at least one list, and a weight for each");
                check_lists(lists);
                return PixelStage{&kChoice, op, p, std::move(weights), std::move(lists)};
            },
            "op"_a, "p"_a, "weights"_a, "lists"_a,
            "Apply the first list whose cumulative weight in ``weights`` is above a random number.")
        .def_static(
            "shuffle",
            [](uint32_t op, double p, std::vector<std::vector<PixelStage>> lists) {
                check_lists(lists);
                return PixelStage{&kShuffle, op, p, {}, std::move(lists)};
            },
            "op"_a, "p"_a, "lists"_a, "Apply all lists in random order.")
        .def_static(
            "mixture",
            [](uint32_t op, double p, double alpha, int chains, int depth, std::vector<PixelStage> list) {
                if (!(alpha > 0) || chains < 1 || chains > kMostChains || depth < 0)
                    throw nb::value_error("alpha, chains or depth is out of range");
                check_lists({list});
                std::vector<double> numbers{alpha, static_cast<double>(chains), static_cast<double>(depth)};
                return PixelStage{&kMixture, op, p, std::move(numbers), {std::move(list)}};
            },
            "op"_a, "p"_a, "alpha"_a, "chains"_a, "depth"_a, "list"_a,
            "Mix the picture with ``chains`` copies of itself. The list has changed each copy ``depth``\n"
            "times; 0: 1 to 3 times at random.");
}

}  // namespace standpipe
