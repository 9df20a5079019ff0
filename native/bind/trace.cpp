// Binds the trace: what transforms do to pictures, without the pictures.
#include "image/trace.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "bind/bind.h"
#include "bind/moves.h"
#include "image/rows.h"

namespace standpipe {
namespace {

using BoxArray = nb::ndarray<const float, nb::shape<-1, 4>, nb::c_contig, nb::device::cpu>;

std::vector<Edges> boxes_of(const BoxArray& boxes, int64_t begin, int64_t end) {
    if (begin < 0 || end < begin || static_cast<size_t>(end) > boxes.shape(0))
        throw nb::value_error("ends: of the boxes of each row, one after another");
    std::vector<Edges> edges(static_cast<size_t>(end - begin));
    for (size_t i = 0; i < edges.size(); ++i)
        std::copy_n(boxes.data() + 4 * (static_cast<size_t>(begin) + i), 4, edges[i].begin());
    return edges;
}

std::pair<Numbers<double>::Array, Numbers<int32_t>::Array> traced(
    const Program& program, size_t head, const SizeArray& sizes, uint64_t seed, uint64_t epoch,
    Column<uint64_t> positions, Column<uint64_t> attempts, const std::optional<BoxArray>& boxes,
    const std::optional<Column<int64_t>>& ends) {
    const std::vector<Size> own = sizes_of(sizes);
    const size_t count = own.size();
    if (head >= program.heads.size()) throw nb::index_error("head");
    if (positions.shape(0) != count || attempts.shape(0) != count) throw nb::value_error("of other rows");
    if (boxes.has_value() != ends.has_value() || (ends && ends->shape(0) != count))
        throw nb::value_error("ends: one for each row, with the boxes");
    if (program.windows > 0 && !boxes) throw nb::value_error("a crop by boxes needs them");
    Numbers<int32_t> windows(4 * program.windows * count);
    std::ranges::fill(windows.values(), 0);
    std::vector<std::vector<Edges>> of_rows(count);
    for (size_t i = 0; program.windows > 0 && i < count; ++i)
        of_rows[i] = boxes_of(*boxes, i == 0 ? 0 : ends->data()[i - 1], ends->data()[i]);
    std::vector<std::vector<Move>> rows(count);
    {
        Released unlocked;
        for (size_t i = 0; i < count; ++i) {
            const SampleKey key{epoch_key(seed, epoch), positions.data()[i], attempts.data()[i]};
            const Size source = own[i];
            const auto of_row = windows.values().subspan(4 * program.windows * i, 4 * program.windows);
            if (source.height > 0 && source.width > 0)
                trace(program, head, source, key, rows[i], of_rows[i], of_row);
        }
    }
    return {numbers_of(rows, own), std::move(windows).array()};
}

Numbers<double>::Array moved_boxes(
    nb::ndarray<const double, nb::shape<-1, 4>, nb::c_contig, nb::device::cpu> boxes, Column<int64_t> rows,
    MoveArray moves, bool cut) {
    const size_t count = boxes.shape(0), each = moves.shape(1);
    if (rows.shape(0) != count) throw nb::value_error("rows: one for each box");
    const std::span<const int64_t> of_boxes = records_of(rows, moves.shape(0));
    return filled<double>(4 * count, [&](auto out) {
        for (size_t i = 0; i < count; ++i) {
            Edges box;
            std::copy_n(boxes.data() + 4 * i, 4, box.begin());
            const double* move = moves.data() + static_cast<size_t>(of_boxes[i]) * each * kMoveNumbers;
            for (size_t at = 0; at < each; ++at, move += kMoveNumbers)
                move_box(std::span<const double, kMoveNumbers>(move, kMoveNumbers), cut, box);
            std::ranges::transform(box, out.begin() + static_cast<ptrdiff_t>(4 * i),
                                   [](double edge) { return std::isnan(edge) ? 0 : edge; });
        }
    });
}

}  // namespace

void bind_moved_boxes(nb::module_& m) {
    m.def("move_boxes", &moved_boxes, "boxes"_a, "rows"_a, "moves"_a, "cut"_a,
          "Return where boxes are after the moves of their rows, (n, 4) float64, flat: the hull of their\n"
          "corners. ``boxes``: (n, 4) float64 xyxy. ``rows``: (n,). ``moves``: (rows, moves, 12), like\n"
          "those of ``trace``. ``cut``: cut off at the edges of each result.");
}

void bind_trace(nb::class_<Program>& program) {
    program.def(
        "trace", &traced, "head"_a, "sizes"_a, "seed"_a, "epoch"_a, "positions"_a, "attempts"_a,
        "boxes"_a.none() = nb::none(), "ends"_a.none() = nb::none(),
        "Return what a head's geometric transforms do to n pictures, (n, moves, 12) float64, flat; and\n"
        "left, top, width and height of the crops that boxes decide, (n, windows, 4) int32, flat, in\n"
        "which those of other heads are 0.\n\n"
        "A move is a matrix of three rows, from a place in the picture before it to one in the result, "
        "in\n"
        "pixels from the upper left corner; the result's height and width; and 1 if boxes whose centre "
        "isn't\n"
        "in the result become empty. A picture that can't be made into a row has a result of 0 × 0 "
        "pixels.\n"
        "``sizes``: (height, width) of each picture before "
        "all\n"
        "transforms, in pixels. ``boxes``, ``ends``: (total, 4) float32 xyxy in pixels of these "
        "pictures, "
        "and\n"
        "(n,) int64 where each row's end. ``positions``, ``attempts``: (n,) uint64, keys of the random "
        "numbers.");
}

}  // namespace standpipe
