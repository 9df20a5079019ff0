// Binds shapes of objects: their outlines, where transforms move them, and masks of them.
#include "image/polygons.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "bind/bind.h"
#include "bind/moves.h"

namespace standpipe {
namespace {

using ChangedPoints = nb::ndarray<float, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;
template <typename Value>
using Pictures = nb::ndarray<Value, nb::shape<-1, -1, -1>, nb::c_contig, nb::device::cpu>;

template <typename Value>
auto array_of(const std::vector<Value>& values) {
    Numbers<Value> numbers(values.size());
    std::ranges::copy(values, numbers.values().begin());
    return std::move(numbers).array();
}

Shapes shapes_of(Points points, Column<int64_t> ends) {
    int64_t before = 0;
    for (size_t i = 0; i < ends.shape(0); before = ends.data()[i++])
        if (ends.data()[i] < before || ends.data()[i] > static_cast<int64_t>(points.shape(0)))
            throw nb::value_error("ends must rise and stay inside points");
    return {{points.data(), 2 * points.shape(0)}, {ends.data(), ends.shape(0)}};
}

// Returns a number for each shape after checking that it is from 0 on and below `count`.
std::span<const int64_t> numbers_of(Column<int64_t> numbers, const Shapes& shapes, size_t count) {
    const std::span<const int64_t> found(numbers.data(), numbers.shape(0));
    if (found.size() != shapes.ends.size()) throw nb::value_error("one number for each shape");
    for (const int64_t number : found)
        if (number < 0 || static_cast<uint64_t>(number) >= count)
            throw nb::index_error("a shape's row or picture is outside");
    return found;
}

template <typename Value>
void drawn(Points points, Column<int64_t> ends, Column<int64_t> pictures, Column<int64_t> values,
           Column<int64_t> layers, double ratio, Pictures<Value> out) {
    const Shapes shapes = shapes_of(points, ends);
    const auto of_shapes = numbers_of(pictures, shapes, out.shape(0));
    if (values.shape(0) != shapes.ends.size() || layers.shape(0) != shapes.ends.size() || !(ratio > 0))
        throw nb::value_error("values, layers or ratio");
    if (out.shape(1) > INT32_MAX || out.shape(2) > INT32_MAX) throw nb::value_error("out is too large");
    const Masks<Value> masks{{out.data(), out.size()}, out.shape(1), out.shape(2)};
    Released unlocked;
    draw(shapes, of_shapes, {values.data(), values.shape(0)}, {layers.data(), layers.shape(0)}, ratio, masks);
}

}  // namespace

void bind_polygons(nb::module_& m) {
    m.def(
        "run_lengths",
        [](nb::bytes text) {
            const auto runs = run_lengths({text.c_str(), text.size()});
            if (!runs) throw nb::value_error("its text isn't of runs of pixels");
            return array_of(*runs);
        },
        "text"_a, "Return the lengths of runs of pixels that COCO has as text, (n,) int64.");
    m.def(
        "outline_of_runs",
        [](Column<int64_t> runs, int64_t height, int64_t width) {
            const auto points = outline({runs.data(), runs.shape(0)}, height, width);
            if (!points) throw nb::value_error("its runs don't have as many pixels as its size says");
            return array_of(*points);
        },
        "runs"_a, "height"_a, "width"_a,
        "Return the outline of the pixels of every second run, as points x and y by turns, flat float32: "
        "rings\n"
        "between the pixels, each ended by NaN. Runs go down the columns.");
    m.def(
        "turn_alike",
        [](ChangedPoints points) {
            Released unlocked;
            turn_alike({points.data(), points.size()});
        },
        "points"_a.noconvert(),
        "Turn rings around that wind the other way than the first rings of ``outline_of_runs``.");
    m.def(
        "move_shapes",
        [](Points points, Column<int64_t> ends, Column<int64_t> rows, MoveArray moves, bool cut) {
            const Shapes shapes = shapes_of(points, ends);
            const auto of_shapes = numbers_of(rows, shapes, moves.shape(0));
            MovedShapes found;
            {
                Released unlocked;
                found = moved(shapes, of_shapes, {moves.data(), moves.size()}, moves.shape(1), cut);
            }
            return std::make_tuple(array_of(found.points), array_of(found.ends), array_of(found.hulls));
        },
        "points"_a, "ends"_a, "rows"_a, "moves"_a, "cut"_a,
        "Return points and ends of shapes after the moves of their rows, and the box around each, (n, 4) "
        "float32;\n"
        "points and boxes are flat. ``cut``: at the edges of each result.");
    constexpr const char* kDraw =
        "Write zeros, and the value of each shape where the centre of a pixel is in it. Shapes of one "
        "picture come\n"
        "one after another. Higher layers are drawn over lower ones, and smaller shapes over larger ones of "
        "their\n"
        "layer. ``ratio``: pixels of the shapes' places in each pixel of ``out``, (pictures, H, W).";
    m.def("draw_shapes", &drawn<uint8_t>, "points"_a, "ends"_a, "pictures"_a, "values"_a, "layers"_a,
          "ratio"_a, "out"_a.noconvert(), kDraw);
    m.def("draw_shapes", &drawn<int16_t>, "points"_a, "ends"_a, "pictures"_a, "values"_a, "layers"_a,
          "ratio"_a, "out"_a.noconvert());
    m.def(
        "left_of_shapes",
        [](Points points, Column<int64_t> ends, Column<int64_t> layers, SizeArray sizes) {
            const Shapes shapes = shapes_of(points, ends);
            const std::span<const int64_t> of_shapes(layers.data(), layers.shape(0)),
                sides(sizes.data(), sizes.size());
            if (of_shapes.size() != shapes.ends.size() || sizes.shape(0) != shapes.ends.size())
                throw nb::value_error("a layer and a size for each shape");
            if (!std::ranges::is_sorted(of_shapes)) throw nb::value_error("layers must rise");
            if (std::ranges::any_of(sides, [](int64_t side) { return side < 0 || side > INT32_MAX; }))
                throw nb::value_error("a size is outside");
            std::vector<float> found;
            {
                Released unlocked;
                found = left_over(shapes, of_shapes, sides);
            }
            return array_of(found);
        },
        "points"_a, "ends"_a, "layers"_a, "sizes"_a,
        "Return the box around what shapes above leave of each shape's pixels, (n, 4) float32, flat: "
        "infinite where\n"
        "they take none, and with left beyond right where they take all. ``layers``: twice the number of the "
        "shape's\n"
        "picture, and 1 more for a shape above the others; they rise. ``sizes``: (n, 2) int64, of the "
        "pictures.");
}

}  // namespace standpipe
