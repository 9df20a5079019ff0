// Binds rows that are made of several images.
#include "image/compose.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "bind/bind.h"
#include "bind/job.h"
#include "bind/moves.h"

namespace standpipe {
namespace {

using AreaArray = nb::ndarray<const int64_t, nb::shape<-1, 4>, nb::c_contig, nb::device::cpu>;

std::shared_ptr<Composer> composer_of(std::vector<std::pair<Composition, std::shared_ptr<Program>>> levels) {
    std::vector<Composer::Level> own;
    for (auto& [how, after] : levels) {
        const bool is_last = own.size() + 1 == levels.size();
        const RowFormat& format = after->format();
        if (after->heads.size() != 1 || after->inputs.size() != 1 || after->inputs.front().channels != 3)
            throw nb::value_error("levels: a program has one head, and takes colours");
        if (!is_last && (format.type != ElementType::u8 || format.planar || format.channels != 3))
            throw nb::value_error(
                "levels: a program in front of a composition makes (height, width, 3) uint8");
        if (format.varies()) throw nb::value_error("levels: a program makes pictures of one size");
        own.push_back({how, std::move(after)});
    }
    if (own.empty()) throw nb::value_error("levels: at least one");
    return std::make_shared<Composer>(std::move(own));
}

nb::tuple drawn_frames(const Composer& composer, uint64_t seed, uint64_t epoch, Column<uint64_t> positions,
                       Column<uint64_t> attempts) {
    const size_t rows = positions.shape(0), each = composer.frames();
    if (attempts.shape(0) != rows) throw nb::value_error("attempts: one per row");
    Numbers<uint8_t> used(rows * each);
    Numbers<uint64_t> words(rows * each);
    for (size_t row = 0; row < rows; ++row)
        composer.draw({epoch_key(seed, epoch), positions.data()[row], attempts.data()[row]},
                      used.values().subspan(row * each, each), words.values().subspan(row * each, each));
    return nb::make_tuple(std::move(used).array(), std::move(words).array());
}

Numbers<double>::Array traced_frames(const Composer& composer, SizeArray sizes, uint64_t seed, uint64_t epoch,
                                     Column<uint64_t> positions, Column<uint64_t> attempts,
                                     std::optional<size_t> levels, bool mirrored,
                                     const std::optional<AreaArray>& areas) {
    const size_t rows = positions.shape(0), each = composer.frames();
    if (attempts.shape(0) != rows || sizes.shape(0) != rows * each)
        throw nb::value_error("sizes: of each frame of each row; attempts: one per row");
    const size_t count = levels.value_or(composer.levels());
    if (count > composer.levels()) throw nb::value_error("levels: more than there are");
    const size_t pictures = areas ? composer.pasted_pictures() : 0;
    if (areas && areas->shape(0) != rows * pictures) throw nb::value_error("areas: one per picture");
    std::vector<Box> boxes(rows * pictures);
    for (size_t i = 0; i < boxes.size(); ++i) {
        const auto side = [&](size_t at) { return static_cast<int>(areas->data()[4 * i + at]); };
        boxes[i] = {side(0), side(1), side(2) - side(0), side(3) - side(1)};
    }
    std::vector<Size> own = sizes_of(sizes);
    std::vector<std::vector<Move>> moves(rows * each);
    {
        Released unlocked;
        for (size_t row = 0; row < rows; ++row)
            composer.trace(std::span(own).subspan(row * each, each),
                           {epoch_key(seed, epoch), positions.data()[row], attempts.data()[row]}, count,
                           mirrored, std::span(boxes).subspan(row * pictures, pictures),
                           std::span(moves).subspan(row * each, each));
    }
    return numbers_of(moves, own);
}

}  // namespace

void attach_frames(SubmittedJob& s, std::vector<std::shared_ptr<ImageFrame>> frames) {
    Job& job = *s.job;
    if (!job.program || job.program->heads.size() != 1 || job.program->format().type != ElementType::u8 ||
        job.program->format().planar || job.program->format().channels != 3 ||
        frames.size() < rows_spanned(job))
        throw nb::value_error("frames: one for each row, (height, width, 3) uint8");
    Output& output = job.outputs.front();
    output.areas.clear();
    for (const auto& frame : frames) output.areas.push_back({frame->pixels.get(), frame->size, frame->size});
    job.frames = std::move(frames);
}

void attach_composer(SubmittedJob& s, std::shared_ptr<Composer> composer,
                     std::vector<std::shared_ptr<ImageFrame>> frames, Column<int32_t> numbers) {
    Job& job = *s.job;
    const size_t each = composer->frames();
    check_rows(numbers.shape(0), static_cast<int>(each) * job.rows, "numbers: as many for each row");
    if (job.program != composer->last()) throw nb::value_error("program: the composer's last one");
    for (size_t i = 0; i < numbers.shape(0); ++i)
        if (numbers.data()[i] < -1 || numbers.data()[i] >= static_cast<int64_t>(frames.size()))
            throw nb::value_error("a number isn't a frame's");
    for (size_t row = 0; row < static_cast<size_t>(job.rows); ++row) {
        std::vector<uint8_t> used(each);
        std::vector<uint64_t> words(each);
        composer->draw(job.key(static_cast<int>(row)), used, words);
        for (size_t i = 0; i < each; ++i)
            if (used[i] && numbers.data()[row * each + i] < 0) throw nb::value_error("a row lacks a frame");
    }
    job.frames_of_rows.assign(numbers.data(), numbers.data() + numbers.shape(0));
    job.frames = std::move(frames);
    job.composer = std::move(composer);
}

void attach_pasted(SubmittedJob& s, Points points, Column<int64_t> ends, Column<int64_t> pictures) {
    Job& job = *s.job;
    const auto rise = [](const Column<int64_t>& of, size_t most) {
        const std::span<const int64_t> each(of.data(), of.shape(0));
        return std::ranges::is_sorted(each) &&
               (each.empty() || (each.front() >= 0 && static_cast<uint64_t>(each.back()) <= most));
    };
    if (!job.composer || !rise(ends, points.shape(0)) || !rise(pictures, ends.shape(0)) ||
        pictures.shape(0) != job.composer->pasted_pictures() * static_cast<size_t>(job.rows))
        throw nb::value_error("pictures: the end of the shapes of each picture of each row");
    job.pasted.points.assign(points.data(), points.data() + points.size());
    job.pasted.ends.assign(ends.data(), ends.data() + ends.shape(0));
    job.pasted.pictures.assign(pictures.data(), pictures.data() + pictures.shape(0));
}

void bind_compose(nb::module_& m) {
    nb::class_<Composition>(m, "Composition", "A way of putting several pictures together.")
        .def_static(
            "mosaic",
            [](uint32_t op, double p, int height, int width, const Colour& fill) {
                return Composition{Composition::Kind::mosaic, op, p, {height, width}, fill, 1};
            },
            "op"_a, "p"_a, "height"_a, "width"_a, "fill"_a,
            "Put four pictures around a random place of a canvas of twice ``height`` × ``width`` pixels, "
            "with\n"
            "probability ``p``; else the first one stays alone.")
        .def_static(
            "mix_up",
            [](uint32_t op, double p, double alpha) {
                return Composition{Composition::Kind::mix_up, op, p, {}, {}, alpha};
            },
            "op"_a, "p"_a, "alpha"_a, "Blend two pictures of one size, with weights of a beta distribution.")
        .def_static(
            "paste",
            [](uint32_t op, double p, bool mirrored) {
                using Kind = Composition::Kind;
                return Composition{mirrored ? Kind::paste_mirrored : Kind::paste, op, p, {}, {}, 1};
            },
            "op"_a, "p"_a, "mirrored"_a,
            "Paste parts of another picture of one size, or of the picture itself, mirrored.");

    nb::class_<ImageFrame>(m, "ImageFrame", "An image in memory, of which rows are made.");

    m.attr("SLACK") = kSlack;
    nb::class_<FrameStore>(m, "FrameStore", "Memory for frames, which is used again.")
        .def(nb::new_([](size_t usual_bytes) { return std::make_shared<FrameStore>(usual_bytes); }),
             "usual_bytes"_a)
        .def(
            "take",
            [](FrameStore& store, SizeArray sizes) {
                std::vector<std::shared_ptr<ImageFrame>> frames;
                for (const Size size : sizes_of(sizes)) frames.push_back(store.take(size));
                return frames;
            },
            "sizes"_a, "Return a frame for each (height, width) in pixels. ``sizes``: (n, 2) int64.")
        .def_prop_ro("bytes", &FrameStore::bytes, "Bytes of all frames, those that nobody has included.");

    nb::class_<Composer>(m, "Composer", "Makes rows of frames.")
        .def(nb::new_(&composer_of), "levels"_a,
             "``levels``: compositions one after another, each with the program of the transforms behind it.")
        .def_prop_ro("frames", &Composer::frames,
                     "Number of frames of a row, if all compositions take place.")
        .def(
            "memory_bytes",
            [](const Composer& c, int height, int width) { return c.memory_bytes({height, width}); },
            "height"_a, "width"_a, "Return the bytes of a thread's memory for frames of at most this size.")
        .def("draw", &drawn_frames,
             nb::sig("def draw(self, seed: int, epoch: int, positions: numpy.typing.NDArray[numpy.uint64], "
                     "attempts: "
                     "numpy.typing.NDArray[numpy.uint64]) -> tuple[numpy.typing.NDArray[numpy.uint8], "
                     "numpy.typing.NDArray[numpy.uint64]]"),
             "seed"_a, "epoch"_a, "positions"_a, "attempts"_a,
             "Return which frames n rows are made of, (n, frames) uint8, flat, 1 for those; and a random "
             "word for\n"
             "the choice of each, (n, frames) uint64, flat.")
        .def_prop_ro(
            "pasted_pictures", &Composer::pasted_pictures,
            "Number of pictures of a row on which something is pasted, if all compositions take place.")
        .def("trace", &traced_frames, "sizes"_a, "seed"_a, "epoch"_a, "positions"_a, "attempts"_a,
             "levels"_a = nb::none(), "mirrored"_a = false, "areas"_a = nb::none(),
             "Return the moves of frames to n rows, (n × frames, moves, 12) float64, flat, as "
             "``Program.trace``\n"
             "does. ``sizes``: (n × frames, 2) int64, height and width in pixels. ``levels``: up to the "
             "pictures\n"
             "behind so many, or behind all. ``mirrored``: of what is pasted mirrored. ``areas``: (n × "
             "pictures, 4)\n"
             "int64 xyxy, where pictures are pasted, which are cut off there; without them, they aren't.");
}

}  // namespace standpipe
