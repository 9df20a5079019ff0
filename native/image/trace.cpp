#include "image/trace.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace standpipe {
namespace {

// Adds a move of each axis by itself: times `scale`, and then `by` pixels.
void add(std::vector<Move>& moves, double scale_x, double by_x, double scale_y, double by_y, Size after,
         Move::Kind kind = Move::Kind::plain) {
    moves.push_back({{scale_x, 0, by_x, 0, scale_y, by_y, 0, 0, 1}, after.height, after.width, kind});
}

// Adds the moves of a stage from its crop on, those that it makes.
void add_stage(const GeometryStage& stage, const Cut& cut, Size whole, const SampleGeometry& made,
               std::vector<Move>& moves) {
    const Box& box = cut.box;
    const bool by_boxes = stage.crop_by_boxes && box.size() != cut.canvas;
    if (stage.has_crop || by_boxes)
        add(moves, 1, -box.x, 1, -box.y, box.size(), by_boxes ? Move::Kind::drops : Move::Kind::plain);
    if (cut.mirrored) add(moves, -1, box.width, 1, 0, box.size());
    if (whole != box.size())
        add(moves, static_cast<double>(whole.width) / box.width, 0,
            static_cast<double>(whole.height) / box.height, 0, whole);
    if (stage.has_window) add(moves, 1, -made.x.offset, 1, -made.y.offset, made.out);
    if (made.resample.mirror) add(moves, -1, made.out.width, 1, 0, made.out);
}

// The boxes of a picture, and the windows that they decide.
struct BoxesOfRow {
    std::span<Edges> boxes;
    std::span<int32_t> windows;
    size_t moved = 0;  // moves that the boxes have made

    void decide(const CropByBoxes& crop, Size canvas, const SampleKey& key, const std::vector<Move>& moves) {
        for (; moved < moves.size(); ++moved) move_boxes(moves[moved], boxes);
        const Box window = draw_crop_by_boxes(crop, canvas, boxes, key);
        int32_t* const out = windows.data() + 4 * crop.number;
        out[0] = window.x, out[1] = window.y, out[2] = window.width, out[3] = window.height;
    }
};

}  // namespace

void move_box(std::span<const double, kMoveNumbers> move, bool cut, Edges& box) noexcept {
    const auto m = move.first<9>();
    constexpr double kNone = std::numeric_limits<double>::infinity();
    Edges hull{kNone, kNone, -kNone, -kNone};
    for (const auto& [i, j] : {std::pair(0, 1), std::pair(2, 1), std::pair(2, 3), std::pair(0, 3)}) {
        const double x = box[static_cast<size_t>(i)], y = box[static_cast<size_t>(j)];
        const double w = m[6] * x + m[7] * y + m[8];
        const double to[2] = {(m[0] * x + m[1] * y + m[2]) / w, (m[3] * x + m[4] * y + m[5]) / w};
        for (size_t axis = 0; axis < 2; ++axis) {
            hull[axis] = std::min(hull[axis], to[axis]);
            hull[axis + 2] = std::max(hull[axis + 2], to[axis]);
        }
    }
    if (!(hull[0] <= hull[2])) {  // all places became one
        box.fill(std::numeric_limits<double>::quiet_NaN());
        return;
    }
    const Edges canvas{0, 0, move[10], move[9]};
    const bool drops = move[11] == static_cast<double>(Move::Kind::drops) && !has_centre(canvas, hull);
    for (size_t side = 0; cut && side < 4; ++side)
        hull[side] = drops ? 0 : std::clamp(hull[side], 0.0, canvas[side | 2]);
    box = hull;
}

void move_boxes(const Move& move, std::span<Edges> boxes) noexcept {
    std::array<double, kMoveNumbers> numbers;
    std::ranges::copy(move.matrix, numbers.begin());
    numbers[9] = move.height;
    numbers[10] = move.width;
    numbers[11] = static_cast<double>(move.kind);
    for (Edges& box : boxes) move_box(numbers, true, box);
}

namespace {

void trace_row(const Program& program, size_t head, Size source, const SampleKey& key,
               std::vector<Move>& moves, BoxesOfRow* of_row) {
    moves.clear();
    std::vector<uint8_t> scratch;  // of stages that change values: they get a picture of one pixel
    SampleKey own = key.salted(program.heads[head].salt);
    if (of_row) own.windows = of_row->windows.data();
    for (const Pass& pass : program.heads[head].passes) {
        const auto [stage, of_stage] = drawn(pass.geometry, own);
        Cut cut = cut_of(stage, source, of_stage);
        if (cut.canvas != cut.source) add(moves, 1, cut.left, 1, cut.top, cut.canvas);
        if (of_row && stage.crop_by_boxes) {
            of_row->decide(*stage.crop_by_boxes, cut.canvas, of_stage, moves);
            cut = cut_of(stage, source, of_stage);
        }
        const Size whole = resized(stage, cut.box.size(), of_stage);
        if (is_too_large(whole) || !fits(stage, whole)) {
            moves.assign(1, {});
            return;
        }
        const SampleGeometry made = sample_geometry(stage, cut, of_stage, 1);
        add_stage(stage, cut, whole, made, moves);
        source = made.out;
        Canvas canvas(*program.kernels, source.height, source.width, moves);
        for (const PixelStage& each : pass.pixels) {
            scratch.resize(std::max(scratch.size(), each.scratch_bytes({nullptr, 1, 1})));
            each.apply(own, canvas, scratch.data());
        }
        source = {canvas.height(), canvas.width()};
    }
    const RowFormat& format = program.heads[head].format;
    if (!format.varies() && source != Size{format.height, format.width}) moves.assign(1, {});
}

}  // namespace

void trace(const Program& program, size_t head, Size source, const SampleKey& key, std::vector<Move>& moves) {
    trace_row(program, head, source, key, moves, nullptr);
}

void trace(const Program& program, size_t head, Size source, const SampleKey& key, std::vector<Move>& moves,
           std::span<Edges> boxes, std::span<int32_t> windows) {
    BoxesOfRow of_row{boxes, windows};
    trace_row(program, head, source, key, moves, &of_row);
}

}  // namespace standpipe
