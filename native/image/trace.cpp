#include "image/trace.h"

#include <algorithm>

namespace standpipe {
namespace {

// Adds a move of each axis by itself: times `scale`, and then `by` pixels.
void add(std::vector<Move>& moves, double scale_x, double by_x, double scale_y, double by_y, Size after) {
    moves.push_back({{scale_x, 0, by_x, 0, scale_y, by_y, 0, 0, 1}, after.height, after.width});
}

// Adds the moves of a stage, those that it makes.
void add_stage(const GeometryStage& stage, const Cut& cut, Size whole, const SampleGeometry& made,
               std::vector<Move>& moves) {
    const Box& box = cut.box;
    if (cut.canvas != cut.source) add(moves, 1, cut.left, 1, cut.top, cut.canvas);
    if (stage.has_crop) add(moves, 1, -box.x, 1, -box.y, box.size());
    if (cut.mirrored) add(moves, -1, box.width, 1, 0, box.size());
    if (whole != box.size())
        add(moves, static_cast<double>(whole.width) / box.width, 0,
            static_cast<double>(whole.height) / box.height, 0, whole);
    if (stage.has_window) add(moves, 1, -made.x.offset, 1, -made.y.offset, made.out);
    if (made.resample.mirror) add(moves, -1, made.out.width, 1, 0, made.out);
}

}  // namespace

void trace(const Program& program, size_t head, Size source, const SampleKey& key, std::vector<Move>& moves) {
    moves.clear();
    std::vector<uint8_t> scratch;  // of stages that change values: they get a picture of one pixel
    const SampleKey own = key.salted(program.heads[head].salt);
    for (const Pass& pass : program.heads[head].passes) {
        const GeometryStage& stage = pass.geometry;
        const Cut cut = cut_of(stage, source, own);
        const Size whole = resized(stage, cut.box.size(), own);
        if (is_too_large(whole) || !fits(stage, whole)) {
            moves.clear();
            return;
        }
        const SampleGeometry made = sample_geometry(stage, cut, own, 1);
        add_stage(stage, cut, whole, made, moves);
        source = made.out;
        Canvas canvas(*program.kernels, source.height, source.width, moves);
        for (const PixelStage& each : pass.pixels) {
            scratch.resize(std::max(scratch.size(), each.scratch_bytes({nullptr, 1, 1})));
            each.apply(own, canvas, scratch.data());
        }
    }
    const RowFormat& format = program.heads[head].format;
    if (source != Size{format.height, format.width}) moves.clear();
}

}  // namespace standpipe
