#include "image/compose.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "image/arranged.h"
#include "image/polygons.h"
#include "image/trace.h"
#include "pixels/operations.h"
#include "simd/aligned.h"

namespace standpipe {

extern const PixelKind kRandomAffine;

namespace {

constexpr uint32_t kPartnersOp = 0x55 << 16;  // no transform has it

uint64_t bytes_of(Size size) noexcept {
    return 3 * static_cast<uint64_t>(size.height) * static_cast<uint64_t>(size.width);
}

// Returns the key of what is made of the frames from `first` on: the row's own, or another image's beside it.
SampleKey key_of(const SampleKey& row, size_t first) noexcept {
    return row.salted(first == 0 ? 0 : mix(kGolden, first));
}

// Makes a buffer at least so long, without keeping what it holds. It never gets shorter: that would cost
// zeros once it gets longer again.
void make_room(std::vector<uint8_t>& buffer, size_t bytes) {
    if (buffer.size() < bytes) refit(buffer, bytes);
}

// Adds the moves of a picture that is cut off at the edges of an area, and stays where it is.
void cut_off(const Box& area, Size canvas, std::vector<Move>& moves) {
    const double x = area.x, y = area.y;
    moves.push_back({{1, 0, -x, 0, 1, -y, 0, 0, 1}, area.height, area.width});
    // As behind a warp, what was cut off before doesn't count for SanitizeBoundingBoxes.
    moves.push_back({{1, 0, x, 0, 1, y, 0, 0, 1}, canvas.height, canvas.width, Move::Kind::warps});
}

}  // namespace

Composer::Composer(std::vector<Level> levels) : levels_(std::move(levels)), frames_{1} {
    for (const Level& level : levels_) {
        frames_.push_back(frames_.back() * level.how.pictures());
        Split split;
        std::vector<Pass> passes = level.after->heads.front().passes;
        if (passes.size() > 1 && only_mirrors(passes.front().geometry) &&
            passes.front().geometry.mirrors.empty() && passes.front().geometry.early_mirrors.empty()) {
            split.in_place = std::move(passes.front().pixels);
            split.warps = split.in_place.front().kind == &kRandomAffine && split.in_place.front().height > 0;
            passes.erase(passes.begin());
        }
        split.rest = std::make_shared<Program>(*level.after);
        split.rest->heads.front().passes = std::move(passes);
        splits_.push_back(std::move(split));
    }
}

void Composer::mark(size_t level, size_t first, const SampleKey& key,
                    std::span<uint8_t> used) const noexcept {
    if (level == 0) {
        used[first] = 1;
        return;
    }
    const Composition& how = levels_[level - 1].how;
    Draws draws(key_of(key, first).op(how.op));
    const size_t count = draws.uniform() < how.p ? how.pictures() : 1;
    for (size_t i = 0; i < count; ++i) mark(level - 1, first + i * frames_[level - 1], key, used);
}

void Composer::draw(const SampleKey& key, std::span<uint8_t> used, std::span<uint64_t> words) const noexcept {
    std::ranges::fill(used, uint8_t{0});
    mark(levels_.size(), 0, key, used);
    Draws draws(key.op(kPartnersOp));
    for (uint64_t& word : words) word = draws.word();
}

size_t Composer::pasted_pictures() const noexcept {
    for (size_t level = 0; level < levels_.size(); ++level)
        if (levels_[level].how.pastes()) return frames() / frames_[level + 1];
    return 0;
}

Size Composer::trace(size_t level, size_t first, std::span<const Size> sizes, const SampleKey& key,
                     bool mirrored, std::span<const Box> areas, std::span<std::vector<Move>> moves) const {
    if (level == 0) return sizes[first];
    const Level& at = levels_[level - 1];
    const size_t step = frames_[level - 1];
    const SampleKey own = key_of(key, first);
    Draws draws(own.op(at.how.op));
    const size_t count = draws.uniform() < at.how.p ? at.how.pictures() : 1;
    std::array<Size, 4> parts;
    for (size_t i = 0; i < count; ++i)
        parts[i] = trace(level - 1, first + i * step, sizes, key, mirrored, areas, moves);
    const Arranged made = arranged(at.how, draws, {parts.data(), count});
    std::vector<Move> later;
    standpipe::trace(*at.after, 0, made.canvas, own, later);
    for (size_t i = 0; i < count; ++i)
        for (size_t frame = first + i * step; frame < first + (i + 1) * step; ++frame) {
            if (at.how.kind == Composition::Kind::paste_mirrored)
                moves[frame].push_back(
                    {{mirrored ? -1.0 : 1.0, 0, mirrored ? made.canvas.width : 0.0, 0, 1, 0, 0, 0, 1},
                     made.canvas.height,
                     made.canvas.width});
            else if (!made.is_plain() && made.share == 0)
                moves[frame].push_back({{1, 0, static_cast<double>(made.parts[i].left), 0, 1,
                                         static_cast<double>(made.parts[i].top), 0, 0, 1},
                                        made.canvas.height,
                                        made.canvas.width});
            else if (i == 1 && at.how.pastes() && !areas.empty())
                cut_off(areas[first / frames_[level]], made.canvas, moves[frame]);
            moves[frame].insert(moves[frame].end(), later.begin(), later.end());
        }
    const RowFormat& format = at.after->format();
    return {format.height, format.width};
}

void Composer::trace(std::span<const Size> sizes, const SampleKey& key, size_t levels, bool mirrored,
                     std::span<const Box> areas, std::span<std::vector<Move>> moves) const {
    std::vector<uint8_t> used(frames());
    mark(levels_.size(), 0, key, used);
    for (size_t first = 0; first < frames(); first += frames_[levels])
        if (used[first]) trace(levels, first, sizes, key, mirrored, areas, moves);
    for (size_t frame = 0; frame < frames(); ++frame)
        if (!used[frame]) moves[frame].clear();
}

// A picture on its way to a row.
struct Held {
    const uint8_t* pixels = nullptr;
    Size size;
    std::vector<uint8_t>* own = nullptr;  // the memory that has it; null: it is a frame
};

struct Composer::Making {
    const Composer& composer;
    InputMaker& maker;
    SideArena::Part& part;
    ComposeMemory& memory;
    std::span<const ImageFrame* const> frames;
    const PastedShapes& pasted;
    size_t row;
    const SampleKey& key;
    const RowPlace& out;
    Outcome outcome{};

    // Makes the picture behind a level of the frames from `first` on, the `number`th of those that are put
    // together next.
    Held picture(size_t level, size_t first, size_t number) {
        if (level == 0) return {frames[first]->pixels.get(), frames[first]->size, nullptr};
        const Level& at = composer.levels_[level - 1];
        const Split& split = composer.splits_[level - 1];
        const size_t step = composer.frames_[level - 1];
        const SampleKey own = key_of(key, first);
        Draws draws(own.op(at.how.op));
        const size_t count = draws.uniform() < at.how.p ? at.how.pictures() : 1;
        std::array<Held, 4> held;
        std::array<Size, 4> sizes;
        for (size_t i = 0; i < count && outcome.kind == Outcome::Kind::ok; ++i) {
            held[i] = picture(level - 1, first + i * step, i);
            sizes[i] = held[i].size;
        }
        if (outcome.kind != Outcome::Kind::ok) return {};
        Arranged made = arranged(at.how, draws, {sizes.data(), count});
        for (size_t i = 0; i < count; ++i) made.parts[i].pixels = held[i].pixels;
        ComposeMemory::OfLevel& of_level = memory.levels[level - 1];
        std::vector<uint8_t>& result = of_level.results[number];
        std::span<const PixelStage> stages = split.in_place;
        if (at.how.pastes()) {
            const size_t picture = row * composer.pasted_pictures() + first / composer.frames_[level];
            held[0] = with_pasted(picture, at.how, held[0], held[count - 1],
                                  split.warps ? of_level.canvas : result);
            made.parts[0].pixels = held[0].pixels;
        }
        Held whole = held[0];
        if (split.warps && made.share == 0) {
            whole = warped(stages.front(), own, made, of_level.canvas, result);
            stages = stages.subspan(1);
        } else if (made.share > 0) {
            make_room(result, bytes_of(made.canvas) + kSlack);
            blend(held[0].pixels, held[1].pixels, made.share, bytes_of(made.canvas), result.data());
            whole = {result.data(), made.canvas, &result};
        } else if (!made.is_plain()) {
            make_room(result, bytes_of(made.canvas) + kSlack);
            assemble(made, {0, 0, made.canvas.width, made.canvas.height}, result.data());
            whole = {result.data(), made.canvas, &result};
        }
        if (!stages.empty()) whole = change(stages, own, whole, result);
        return finish(level, own, whole, result);
    }

    // Returns a picture on which parts of another one of its size are pasted.
    Held with_pasted(size_t picture, const Composition& how, const Held& own, const Held& other,
                     std::vector<uint8_t>& to) {
        if (pasted.pictures.empty()) return own;
        const auto first = static_cast<size_t>(picture == 0 ? 0 : pasted.pictures[picture - 1]),
                   last = static_cast<size_t>(pasted.pictures[picture]);
        if (first == last) return own;
        refit(to, bytes_of(own.size) + kSlack);
        std::memcpy(to.data(), own.pixels, bytes_of(own.size));
        const int64_t width = own.size.width;
        for (size_t i = first; i < last; ++i)
            for (const Span& span : pixels_of({pasted.points, pasted.ends}, i, own.size.height, width)) {
                const uint8_t* from = other.pixels + 3 * (span.row * width + span.begin);
                uint8_t* row_of = to.data() + 3 * span.row * width;
                if (how.kind == Composition::Kind::paste)
                    std::memcpy(row_of + 3 * span.begin, from,
                                static_cast<size_t>(3 * (span.end - span.begin)));
                else
                    for (int64_t x = span.begin; x < span.end; ++x, from += 3)
                        std::memcpy(row_of + 3 * (width - 1 - x), from, 3);
            }
        return {to.data(), own.size, &to};
    }

    // Warps a composed picture, of which only the part is put together that is seen.
    Held warped(const PixelStage& stage, const SampleKey& own, const Arranged& made,
                std::vector<uint8_t>& canvas, std::vector<uint8_t>& result) {
        Draws draws(own.op(stage.op));
        draws.uniform();  // it always takes place
        const DrawnWarp warp = drawn_affine(stage, draws, made.canvas.height, made.canvas.width);
        const Size size{warp.height, warp.width};
        make_room(result, bytes_of(size) + kSlack);
        const Held moved{result.data(), size, &result};
        const Pixels out{result.data(), size.height, size.width};
        if (warp_rows(*composer.last()->kernels, ArrangedRows(made), warp, out)) return moved;
        PicturePart part = seen(warp, made.canvas.height, made.canvas.width);
        if (made.is_plain()) {
            part = {{}, 0, 0, made.canvas.height, made.canvas.width};
            part.pixels = {const_cast<uint8_t*>(made.parts[0].pixels), part.height, part.width};
        } else {
            make_room(canvas, part.pixels.bytes() + kSlack);
            assemble(made, {part.left, part.top, part.pixels.width, part.pixels.height}, canvas.data());
            part.pixels.data = canvas.data();
        }
        warp_fixed(*composer.last()->kernels, part, warp, out);
        return moved;
    }

    // Applies stages to a picture where it is; a frame is copied first.
    Held change(std::span<const PixelStage> stages, const SampleKey& own, Held whole,
                std::vector<uint8_t>& result) {
        const size_t bytes =
            passage(stages, {nullptr, whole.size.height, whole.size.width, 3}).bytes + kSlack;
        if (!whole.own) {
            make_room(result, bytes);
            std::memcpy(result.data(), whole.pixels, bytes_of(whole.size));
            whole = {result.data(), whole.size, &result};
        } else if (whole.own->size() < bytes) {
            whole.own->resize(bytes);
            whole.pixels = whole.own->data();
        }
        Canvas canvas(*composer.last()->kernels, {whole.own->data(), whole.size.height, whole.size.width, 3});
        for (const PixelStage& stage : stages) {
            make_room(memory.work, stage.scratch_bytes(canvas.form()));
            stage.apply(own, canvas, memory.work.data());
        }
        canvas.pixels();
        whole.size = {canvas.height(), canvas.width()};
        return whole;
    }

    // Does what is left behind a level: into the row, or for the next level.
    Held finish(size_t level, const SampleKey& own, const Held& whole, std::vector<uint8_t>& result) {
        const Program& rest = *composer.splits_[level - 1].rest;
        const RawPixels pixels{whole.pixels, whole.size, 3, true};
        if (level == composer.levels_.size()) {
            outcome = maker.from_pixels(rest, 0, pixels, own, out, part);
            return {};
        }
        if (only_copies(rest, whole.size)) {
            if (!whole.own || whole.own == &result) return whole;
            std::swap(result, *whole.own);  // which belongs to a level in front, and is used again
            return {whole.pixels, whole.size, &result};
        }
        std::vector<uint8_t>& other = memory.levels[level - 1].other;
        const Size size{rest.format().height, rest.format().width};
        make_room(other, bytes_of(size) + kSlack);
        outcome = maker.from_pixels(rest, 0, pixels, own, RowPlace(other.data()), part);
        part.release();
        std::swap(result, other);
        return {result.data(), size, &result};
    }
};

Outcome Composer::make(InputMaker& maker, SideArena::Part& part, ComposeMemory& memory,
                       std::span<const ImageFrame* const> frames, const PastedShapes& pasted, size_t row,
                       const SampleKey& key, const RowPlace& out) const {
    memory.levels.resize(std::max(memory.levels.size(), levels_.size()));
    Making making{*this, maker, part, memory, frames, pasted, row, key, out};
    making.picture(levels_.size(), 0, 0);
    return std::move(making.outcome);
}

uint64_t Composer::memory_bytes(Size most) const noexcept {
    uint64_t bytes = 0;
    for (const Level& level : levels_) {
        const bool is_mosaic = level.how.kind == Composition::Kind::mosaic;
        const Size canvas = is_mosaic ? Size{2 * level.how.size.height, 2 * level.how.size.width} : most;
        const auto& stages = splits_[static_cast<size_t>(&level - levels_.data())].in_place;
        const Passage passed = passage(stages, {nullptr, canvas.height, canvas.width, 3});
        most = {level.after->format().height, level.after->format().width};
        bytes += bytes_of(canvas) + passed.bytes + passed.scratch_bytes + 4 * bytes_of(most);
    }
    return bytes;
}

}  // namespace standpipe
