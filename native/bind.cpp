// The binding checks papers and lets goods pass: shapes, lifetimes, the GIL, and nothing else.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "bind_checks.h"
#include "bind_faults.h"
#include "bind_reads.h"
#include "bind_samples.h"
#include "list_lines.h"
#include "order.h"
#include "packed.h"
#include "pool.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace penstock {
namespace {

template <typename Value>
using Column = nb::ndarray<const Value, nb::shape<-1>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<nb::numpy, uint8_t, nb::shape<-1>>;
template <typename Value>
using Table = nb::ndarray<const Value, nb::shape<3, 256>, nb::c_contig, nb::device::cpu>;
using Pictures = nb::ndarray<const uint8_t, nb::shape<-1, -1, -1, 3>, nb::c_contig, nb::device::cpu>;
using Picture = nb::ndarray<const uint8_t, nb::shape<-1, -1, 3>, nb::c_contig, nb::device::cpu>;
using AnyRows = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

// Numbers to fill and then hand to Python.
class Int64s {
  public:
    explicit Int64s(size_t count)
        : values_(std::make_unique_for_overwrite<int64_t[]>(count)), count_(count) {}

    std::span<int64_t> values() noexcept { return {values_.get(), count_}; }
    nb::ndarray<nb::numpy, int64_t, nb::shape<-1>> array() && {
        nb::capsule owner(values_.get(), [](void* p) noexcept { delete[] static_cast<int64_t*>(p); });
        return {values_.release(), {count_}, owner};
    }

  private:
    std::unique_ptr<int64_t[]> values_;
    size_t count_;
};

Filter filter_named(const std::string& name) {
    constexpr const char* names[] = {"nearest", "bilinear", "bicubic", "box", "hamming", "lanczos"};
    for (int i = 0; i < 6; ++i)
        if (name == names[i]) return static_cast<Filter>(i);
    throw nb::value_error(("unknown interpolation " + name).c_str());
}

const Kernels* chosen_kernels(const std::optional<std::string>& simd) {
    const Kernels* kernels = simd ? kernels_named(simd->c_str()) : &best_kernels();
    if (!kernels) throw nb::value_error(("this machine doesn't run " + *simd).c_str());
    return kernels;
}

std::vector<std::string> simd_paths() {
    std::vector<std::string> names;
    for (const char* name : {"scalar", "avx2", "avx512", "neon"})
        if (kernels_named(name)) names.emplace_back(name);
    return names;
}

SlotState state_named(const std::string& name) {
    constexpr const char* names[] = {"absent", "free", "filling", "ready", "lent", "spare", "quarantined"};
    for (int i = 0; i < 7; ++i)
        if (name == names[i]) return static_cast<SlotState>(i);
    throw nb::value_error(("unknown slot state " + name).c_str());
}

const char* kind_name(Outcome::Kind kind) {
    switch (kind) {
        case Outcome::Kind::read_error: return "read";
        case Outcome::Kind::cancelled: return "cancelled";
        case Outcome::Kind::ok:
        case Outcome::Kind::foreign:
        case Outcome::Kind::decode_error: break;
    }
    return "decode";
}

const char* desk_name(Desk::Kind kind) {
    constexpr const char* names[] = {"decoding", "reading", "Pillow"};
    return names[static_cast<size_t>(kind)];
}

const char* phase_name(Phase phase) {
    constexpr const char* names[] = {"reading", "waiting", "decoding"};
    return names[static_cast<size_t>(phase)];
}

// A slot's bytes as an array whose owner keeps the arena mapped.
Bytes slot_view(const SlotRing& ring, int slot) {
    auto* owner = new std::shared_ptr<Arena>(ring.arena());
    nb::capsule capsule(owner, [](void* p) noexcept { delete static_cast<std::shared_ptr<Arena>*>(p); });
    return Bytes(ring.arena()->slot(static_cast<size_t>(slot)), {ring.arena()->slot_bytes()}, capsule);
}

// Likewise, but the slot goes back to the ring when the last view of the array is gone.
Bytes slot_lease(std::shared_ptr<SlotRing> ring, int slot) {
    struct Lease {
        std::shared_ptr<SlotRing> ring;
        int slot;
    };
    ring->mark_lent(slot);
    const auto arena = ring->arena();
    auto* lease = new Lease{std::move(ring), slot};
    nb::capsule capsule(lease, [](void* p) noexcept {
        auto* ended = static_cast<Lease*>(p);
        ended->ring->release(ended->slot);
        delete ended;
    });
    return Bytes(arena->slot(static_cast<size_t>(slot)), {arena->slot_bytes()}, capsule);
}

void check_rows(size_t have, int rows, const char* what) {
    if (have != static_cast<size_t>(rows)) throw nb::value_error(what);
}

// Attaches a job's inputs; the arrays stay alive with the Python object that this makes.
struct SubmittedJob {
    std::shared_ptr<Job> job;
    std::vector<nb::object> arrays;
};

// Says which rows of the slot a job's rows are, and which attempts.
void place_rows(Job& job, const std::optional<Column<int64_t>>& slot_rows,
                const std::optional<Column<int64_t>>& attempts) {
    if (slot_rows) {
        check_rows(slot_rows->shape(0), job.rows, "slot_rows: one per row");
        for (size_t i = 0; i < slot_rows->shape(0); ++i) {
            const int64_t row = slot_rows->data()[i];
            if (row < 0 || static_cast<uint64_t>(row) >= job.arena->slot_bytes())
                throw nb::value_error("a row lies outside the slot");
            job.slot_rows.push_back(static_cast<int>(row));
        }
    }
    if (attempts) {
        check_rows(attempts->shape(0), job.rows, "attempts: one per row");
        job.attempts.assign(attempts->data(), attempts->data() + attempts->shape(0));
    }
}

// Rows of the slot up to the last one that the job makes.
size_t rows_spanned(const Job& job) {
    if (job.slot_rows.empty()) return static_cast<size_t>(job.rows);
    return static_cast<size_t>(*std::max_element(job.slot_rows.begin(), job.slot_rows.end())) + 1;
}

// partial: a row may be -1, for one that is in another array.
void check_records(Column<int64_t> rows, size_t records, bool partial) {
    for (size_t i = 0; i < rows.shape(0); ++i) {
        const int64_t row = rows.data()[i];
        if (partial && row == -1) continue;
        if (row < 0 || static_cast<size_t>(row) >= records)
            throw nb::value_error("a row number lies outside its array");
    }
}

void attach_files(SubmittedJob& s, Column<uint8_t> blob, Column<int64_t> ends, Column<int64_t> offset,
                  Column<int64_t> length) {
    check_rows(ends.shape(0), s.job->rows, "files: one path per row");
    check_rows(offset.shape(0), s.job->rows, "files: one offset per row");
    check_rows(length.shape(0), s.job->rows, "files: one length per row");
    int64_t before = 0;
    for (size_t i = 0; i < ends.shape(0); before = ends.data()[i++])
        if (ends.data()[i] < before || ends.data()[i] > static_cast<int64_t>(blob.shape(0)))
            throw nb::value_error("files: ends must rise and stay inside blob");
    s.job->files = {blob.data(), ends.data(), offset.data(), length.data()};
    for (nb::object array : {nb::cast(blob), nb::cast(ends), nb::cast(offset), nb::cast(length)})
        s.arrays.push_back(array);
}

void attach_pixels(SubmittedJob& s, Pictures pictures, Column<int64_t> rows, bool partial) {
    check_rows(rows.shape(0), s.job->rows, "pixels: one record per row");
    check_records(rows, pictures.shape(0), partial);
    s.job->pixels.push_back({pictures.data(),
                             rows.data(),
                             {static_cast<int>(pictures.shape(1)), static_cast<int>(pictures.shape(2))}});
    s.arrays.push_back(nb::cast(pictures));
    s.arrays.push_back(nb::cast(rows));
}

void attach_copy(SubmittedJob& s, AnyRows array, Column<int64_t> rows, size_t slot_offset, size_t row_bytes,
                 bool partial, uint8_t* slot) {
    check_rows(rows.shape(0), s.job->rows, "copy: one record per row");
    if (array.ndim() < 1 || array.nbytes() != array.shape(0) * row_bytes)
        throw nb::value_error("copy: rows have another size");
    check_records(rows, array.shape(0), partial);
    if (slot_offset + row_bytes * rows_spanned(*s.job) > s.job->arena->slot_bytes())
        throw nb::value_error("copy: rows don't fit the slot");
    s.job->copies.push_back(
        {static_cast<const uint8_t*>(array.data()), rows.data(), row_bytes, slot + slot_offset});
    s.arrays.push_back(nb::cast(array));
    s.arrays.push_back(nb::cast(rows));
}

nb::list failures_of(Job& job) {
    std::scoped_lock lock(job.mutex);
    nb::list out;
    for (const Failure& f : job.failures)
        out.append(nb::make_tuple(
            job.slot_row(f.row), kind_name(f.outcome.kind),
            nb::steal(PyUnicode_DecodeUTF8(f.outcome.text.data(),
                                           static_cast<Py_ssize_t>(f.outcome.text.size()), "replace"))));
    return out;
}

// Views of what the last chunk held; they are there until the next one is taken.
template <typename Value>
nb::ndarray<nb::numpy, const Value, nb::shape<-1>> view_of(const std::vector<Value>& values,
                                                           nb::handle owner) {
    return {values.data(), {values.size()}, owner};
}

const char* fault_name(LineFault fault) {
    constexpr const char* names[] = {"none",       "nul",         "carriage_return",
                                     "too_long",   "empty_label", "empty_path",
                                     "other_kind", "too_large",   "image_name"};
    return names[static_cast<int>(fault)];
}

const char* kind_name(LabelKind kind) {
    constexpr const char* names[] = {"absent", "number", "name"};
    return names[static_cast<int>(kind)];
}

nb::object fault_of(const ListLines& lines) {
    if (lines.fault() == LineFault::none) return nb::none();
    return nb::make_tuple(fault_name(lines.fault()), lines.fault_line(), kind_name(lines.fault_kind()),
                          kind_name(lines.first_kind()), lines.first_line(),
                          nb::bytes(lines.fault_label().data(), lines.fault_label().size()));
}

nb::list names_of(const ListLines& lines) {
    nb::list out;
    for (const std::string& name : lines.names()) out.append(nb::bytes(name.data(), name.size()));
    return out;
}

std::span<const int64_t> records_of(Column<int64_t> indices, uint64_t count) {
    const std::span<const int64_t> asked(indices.data(), indices.shape(0));
    for (const int64_t index : asked)
        if (index < 0 || static_cast<uint64_t>(index) >= count)
            throw nb::index_error("a record's number lies outside the index");
    return asked;
}

void raise_fault(const PackedResult& result) {
    switch (result.fault) {
        case PackedFault::none: return;
        case PackedFault::cant_read:
            errno = result.error;
            PyErr_SetFromErrno(PyExc_OSError);
            throw nb::python_error();
        case PackedFault::too_short: throw nb::value_error("it ends too soon");
        case PackedFault::bad_place:
            throw nb::value_error(
                ("the place of record " + std::to_string(result.index) + " lies outside it").c_str());
        case PackedFault::bad_path:
            throw nb::value_error(
                ("where record " + std::to_string(result.index) + " should be is no path").c_str());
        case PackedFault::leads_out:
            throw nb::value_error(
                ("the path of record " + std::to_string(result.index) + " leads out of its folder").c_str());
    }
}

// Keeps the pool that lent the row's buffer.
struct PendingRow {
    std::shared_ptr<Pool> pool;
    ForeignRow row;
};

}  // namespace
}  // namespace penstock

NB_MODULE(_native, m) {
    using namespace penstock;
    // Objects that native threads own too are made by make_shared and derive from enable_shared_from_this:
    // what those threads hold is then no Python reference, and dropping it needs no GIL.
    using Unlocked = nb::call_guard<nb::gil_scoped_release>;

    // A program that ends by an exception keeps what its frames hold, a loader too, to the very end.
    nb::set_leak_warnings(false);

    m.def("simd_paths", &simd_paths, "Instruction sets this machine runs, narrowest first.");
    m.def("jpeg_library_version", &jpeg_library_version, "Version of the libjpeg-turbo in use.");
    m.def(
        "shuffled_indices",
        [](uint64_t seed, uint64_t epoch, uint64_t n, uint64_t start, uint64_t stop) {
            if (n > (uint64_t{1} << 62)) throw nb::value_error("n must be at most 2**62");
            if (start > stop || stop > n) throw nb::value_error("positions must lie in [0, n)");
            Int64s out(stop - start);
            {
                nb::gil_scoped_release unlocked;
                shuffled_indices(seed, epoch, n, start, out.values());
            }
            return std::move(out).array();
        },
        "seed"_a, "epoch"_a, "n"_a, "start"_a, "stop"_a,
        "Records at positions [start, stop) of an epoch's shuffled order.");
    m.def(
        "shuffled_at",
        [](uint64_t seed, uint64_t epoch, uint64_t n, Column<int64_t> positions) {
            if (n > (uint64_t{1} << 62)) throw nb::value_error("n must be at most 2**62");
            const std::span<const int64_t> asked(positions.data(), positions.shape(0));
            for (const int64_t position : asked)
                if (position < 0 || static_cast<uint64_t>(position) >= n)
                    throw nb::value_error("positions must lie in [0, n)");
            Int64s out(asked.size());
            {
                nb::gil_scoped_release unlocked;
                shuffled_at(seed, epoch, n, asked, out.values());
            }
            return std::move(out).array();
        },
        "seed"_a, "epoch"_a, "n"_a, "positions"_a, "Records at any positions of an epoch's shuffled order.");
    m.def(
        "stratified_points",
        [](uint64_t seed, uint64_t epoch, uint64_t n, uint64_t total, uint64_t start, uint64_t stop) {
            if (n >= (uint64_t{1} << 29)) throw nb::value_error("n must be below 2**29");
            if (total < n || total >= (uint64_t{1} << 62))
                throw nb::value_error("total must lie in [n, 2**62)");
            if (start > stop || stop > n) throw nb::value_error("positions must lie in [0, n)");
            Int64s strata(stop - start), points(stop - start);
            {
                nb::gil_scoped_release unlocked;
                stratified_points(seed, epoch, n, total, start, strata.values(), points.values());
            }
            return std::make_tuple(std::move(strata).array(), std::move(points).array());
        },
        "seed"_a, "epoch"_a, "n"_a, "total"_a, "start"_a, "stop"_a,
        "Each position's stratum of a line of ``total`` units in n strata, and a random point in it.");
    m.def(
        "marked_at",
        [](Column<uint64_t> words, Column<int64_t> ranks, Column<int64_t> places) {
            const std::span<const uint64_t> bits(words.data(), words.shape(0));
            const std::span<const int64_t> before(ranks.data(), ranks.shape(0));
            if (bits.empty() || bits.size() % 8 != 0 || before.size() != bits.size() / 8 + 1)
                throw nb::value_error("ranks must have an entry for each 8 words, and one more");
            const auto asked = records_of(places, static_cast<uint64_t>(before.back()));
            Int64s out(asked.size());
            {
                nb::gil_scoped_release unlocked;
                marked_at(bits, before, asked, out.values());
            }
            return std::move(out).array();
        },
        "words"_a, "ranks"_a, "places"_a, "Numbers of the bits that are set, by their place among them.");
    m.def("mix", &mix, "key"_a, "word"_a, "A new 64-bit key of a key and a word.");

    nb::class_<ListLines>(m, "ListLines", "Splits the lines of a list into paths and labels, chunk by chunk.")
        .def(nb::init<bool>(), "labels"_a)
        .def(
            "take",
            [](ListLines& lines, Column<uint8_t> text, uint64_t offset, bool last) {
                nb::gil_scoped_release unlocked;
                return lines.take({text.data(), text.shape(0)}, offset, last);
            },
            "text"_a, "offset"_a, "last"_a, "Take whole lines; how many bytes they are.")
        .def_prop_ro(
            "places", [](nb::pointer_and_handle<ListLines> l) { return view_of(l.p->places(), l.h); },
            "(n,) where the chunk's paths are: offset, and length from bit 48 on.")
        .def_prop_ro(
            "labels", [](nb::pointer_and_handle<ListLines> l) { return view_of(l.p->labels(), l.h); },
            "(n,) the chunk's labels: numbers, or places in ``names``.")
        .def_prop_ro(
            "paths", [](nb::pointer_and_handle<ListLines> l) { return view_of(l.p->paths(), l.h); },
            "The chunk's paths, one after another.")
        .def_prop_ro("line_that_leads_out", &ListLines::line_that_leads_out,
                     "The first line whose path is absolute or has a '..'; 0: none so far.")
        .def_prop_ro("has_labels", &ListLines::has_labels)
        .def_prop_ro("has_names", &ListLines::has_names)
        .def_prop_ro("names", &names_of, nb::sig("def names(self) -> list[bytes]"),
                     "Class names in the order in which they came.")
        .def_prop_ro(
            "fault", &fault_of, nb::sig("def fault(self) -> tuple[str, int, str, str, int, bytes] | None"),
            "Why a line can't be read: (what, line, its label's kind, the first record's kind, the first "
            "record's line, label).");

    m.def(
        "packed_rows",
        [](int file, uint64_t begin, uint64_t row_bytes, uint64_t count, Column<int64_t> indices) {
            const auto asked = records_of(indices, count);
            auto out = std::make_unique_for_overwrite<uint8_t[]>(asked.size() * row_bytes);
            PackedResult result;
            {
                nb::gil_scoped_release unlocked;
                result = read_rows({file, begin, row_bytes}, asked, out.get());
            }
            raise_fault(result);
            nb::capsule owner(out.get(), [](void* p) noexcept { delete[] static_cast<uint8_t*>(p); });
            return Bytes(out.release(), {asked.size() * row_bytes}, owner);
        },
        "file"_a, "begin"_a, "row_bytes"_a, "count"_a, "indices"_a,
        "Rows of a column that starts at byte ``begin`` of a file, packed.");
    m.def(
        "packed_paths",
        [](std::tuple<int, uint64_t, uint64_t> places, std::tuple<int, uint64_t, uint64_t> text,
           std::tuple<nb::bytes, nb::bytes, nb::bytes> around, nb::bytes base, bool stays,
           Column<int64_t> indices) {
            const auto view = [](const nb::bytes& b) { return std::string_view(b.c_str(), b.size()); };
            const auto [places_file, places_begin, count] = places;
            const auto [text_file, text_begin, text_end] = text;
            const auto asked = records_of(indices, count);
            const PackedText of{text_file,
                                text_begin,
                                text_end,
                                view(std::get<0>(around)),
                                view(std::get<1>(around)),
                                view(std::get<2>(around)),
                                stays};
            auto blob = std::make_unique<std::vector<uint8_t>>();
            Int64s ends(asked.size());
            PackedResult result;
            {
                nb::gil_scoped_release unlocked;
                result = read_paths({places_file, places_begin, sizeof(uint64_t)}, of, view(base), asked,
                                    *blob, ends.values());
            }
            raise_fault(result);
            nb::capsule owner(blob.get(),
                              [](void* p) noexcept { delete static_cast<std::vector<uint8_t>*>(p); });
            const Bytes bytes(blob->data(), {blob->size()}, owner);
            blob.release();
            return std::make_tuple(bytes, std::move(ends).array());
        },
        "places"_a, "text"_a, "around"_a, "base"_a, "stays"_a, "indices"_a,
        "Paths of records, as (blob, ends). ``places``: (file, first byte, records); ``text``: (file, begin, "
        "end); "
        "``around``: bytes before a path, after it, and never in it; ``stays``: no path may lead out of "
        "``base``.");

    nb::class_<Stage>(m, "Stage", "Adjacent geometric transforms that one pass does.")
        .def(nb::init<>())
        .def(
            "crop",
            [](Stage& s, uint32_t op, std::tuple<double, double> scale, std::tuple<double, double> ratio) {
                s.has_crop = true;
                s.crop = {op, std::get<0>(scale), std::get<1>(scale), std::get<0>(ratio), std::get<1>(ratio)};
            },
            "op"_a, "scale"_a, "ratio"_a)
        .def(
            "resize",
            [](Stage& s, int height, int width, const std::string& filter) {
                s.resize = Stage::Resize::exact;
                s.target = {height, width};
                s.filter = filter_named(filter);
            },
            "height"_a, "width"_a, "filter"_a)
        .def(
            "resize_shorter",
            [](Stage& s, int size, int max_size, const std::string& filter) {
                s.resize = Stage::Resize::shorter_side;
                s.target = {size, size};
                s.max_size = max_size;
                s.filter = filter_named(filter);
            },
            "size"_a, "max_size"_a, "filter"_a)
        .def(
            "window",
            [](Stage& s, int height, int width) {
                s.has_window = true;
                s.window = {height, width};
            },
            "height"_a, "width"_a)
        .def("mirror", [](Stage& s, uint32_t op, double p) { s.mirrors.push_back({op, p}); }, "op"_a, "p"_a);

    nb::class_<RowFormat>(m, "RowFormat", "Size, element type and layout of a slot's image rows.")
        .def_static(
            "uint8",
            [](int height, int width, bool planar) {
                return RowFormat{height, width, ElementType::u8, planar, {}, {}};
            },
            "height"_a, "width"_a, "planar"_a)
        .def_static(
            "float32",
            [](int height, int width, bool planar, Table<float> table) {
                RowFormat format{height, width, ElementType::f32, planar, {}, {}};
                std::copy_n(table.data(), 768, format.f32[0].data());
                return format;
            },
            "height"_a, "width"_a, "planar"_a, "table"_a)
        .def_static(
            "float16",
            [](int height, int width, bool planar, Table<uint16_t> table) {
                RowFormat format{height, width, ElementType::f16, planar, {}, {}};
                std::copy_n(table.data(), 768, format.f16[0].data());
                return format;
            },
            "height"_a, "width"_a, "planar"_a, "table"_a, "``table``: float16 bit patterns.");

    nb::class_<Program>(m, "Program", "A fused kernel for image rows.")
        .def(nb::new_([](std::vector<Stage> stages, RowFormat format, bool fast, uint64_t max_pixels,
                         int max_scans, bool allow_truncated, std::optional<std::string> simd) {
                 if (stages.empty()) throw nb::value_error("a program needs a stage");
                 auto program = std::make_shared<Program>();
                 program->stages = std::move(stages);
                 program->format = format;
                 program->fast = fast;
                 program->limits = {max_pixels, max_scans, allow_truncated};
                 program->kernels = chosen_kernels(simd);
                 return program;
             }),
             "stages"_a, "format"_a, "fast"_a, "max_pixels"_a, "max_scans"_a, "allow_truncated"_a = false,
             "simd"_a.none() = nb::none())
        .def_prop_ro("simd", [](const Program& p) { return p.kernels->name; });

    nb::class_<Bell>(m, "Bell", "Wakes whoever watches slots and jobs.")
        .def(nb::new_([] { return std::make_shared<Bell>(); }))
        .def("ring", &Bell::ring, Unlocked())
        .def("wait", &Bell::wait, Unlocked(), "seen"_a,
             "Wait for a ring after the call that returned ``seen``.")
        .def(
            "wait_for",
            [](Bell& b, uint64_t seen, double patience_s) {
                return b.wait_for(seen, std::chrono::duration<double>(patience_s));
            },
            Unlocked(), "seen"_a, "patience_s"_a, "Likewise; ``seen`` when nothing rang for so long.");

    nb::class_<SlotRing>(m, "SlotRing", "Equal slots in one sparse memfd arena, and who owns each.")
        .def(nb::new_([](size_t slot_bytes, size_t base, size_t most, std::shared_ptr<Bell> bell) {
                 if (slot_bytes == 0 || base == 0 || most < base) throw nb::value_error("a ring needs slots");
                 return std::make_shared<SlotRing>(std::make_shared<Arena>(slot_bytes, most), base,
                                                   std::move(bell));
             }),
             "slot_bytes"_a, "base"_a, "most"_a, "bell"_a)
        .def("take", &SlotRing::take, Unlocked(), "grow"_a, "A slot to fill, or -1.")
        .def("mark_ready", &SlotRing::mark_ready, Unlocked(), "slot"_a)
        .def("quarantine", &SlotRing::quarantine, Unlocked(), "slot"_a,
             "Give up a slot that a stuck thread may write into yet; ``release`` it when that is over.")
        .def("release", &SlotRing::release, Unlocked(), "slot"_a)
        .def("release_ready", &SlotRing::release_ready, Unlocked(), "Release every ready slot.")
        .def("trim", &SlotRing::trim, Unlocked(), "Give back the memory of slots beyond the base.")
        .def("retire", &SlotRing::retire, Unlocked(),
             "Give back the memory of all slots that aren't lent, and of these as they come back.")
        .def_prop_ro(
            "descriptor", [](const SlotRing& r) { return r.arena()->descriptor(); },
            "The memfd of the slots; it stays the ring's.")
        .def_prop_ro("used", &SlotRing::used, "Slots that take memory.")
        .def_prop_ro("peak", &SlotRing::peak, "Most that took memory at once.")
        .def_prop_ro(
            "stride_bytes", [](const SlotRing& r) { return r.arena()->stride_bytes(); },
            "From the start of one slot to that of the next.")
        .def("view", &slot_view, "slot"_a, "The slot's bytes, to fill.")
        .def("lend", &slot_lease, "slot"_a, "The slot's bytes; dropping the last view gives the slot back.")
        .def(
            "count", [](const SlotRing& r, const std::string& state) { return r.count(state_named(state)); },
            "state"_a);

    bind_reads(m);

    nb::class_<PoolStats>(m, "PoolStats", "Counters of a loader's native threads since they started.")
        .def_ro("rows", &PoolStats::rows)
        .def_ro("bytes", &PoolStats::bytes)
        .def_ro("decode_s", &PoolStats::decode_s)
        .def_ro("foreign", &PoolStats::foreign)
        .def_ro("damaged", &PoolStats::damaged)
        .def_ro("truncated", &PoolStats::truncated)
        .def_ro("read_s", &PoolStats::read_s)
        .def_ro("wait_s", &PoolStats::wait_s)
        .def_ro("retries", &PoolStats::retries)
        .def_ro("hedged", &PoolStats::hedged)
        .def_ro("slowest_read_s", &PoolStats::slowest_read_s)
        .def_ro("side_bytes", &PoolStats::side_bytes)
        .def_ro("side_peak_bytes", &PoolStats::side_peak_bytes)
        .def_ro("read_ahead_bytes", &PoolStats::read_ahead_bytes)
        .def_ro("read_ahead_peak_bytes", &PoolStats::read_ahead_peak_bytes)
        .def_ro("reading_ahead", &PoolStats::reading_ahead);

    nb::class_<SubmittedJob>(m, "Job", "The rows of one slot.")
        .def(
            "__init__",
            [](SubmittedJob* self, const SlotRing& ring, int slot, Column<int64_t> positions,
               std::shared_ptr<Program> program, size_t image_offset, uint64_t seed, uint64_t epoch,
               std::optional<Column<int64_t>> slot_rows, std::optional<Column<int64_t>> attempts) {
                auto job = std::make_shared<Job>();
                job->program = std::move(program);
                job->rows = static_cast<int>(positions.shape(0));
                job->positions.assign(positions.data(), positions.data() + positions.shape(0));
                job->arena = ring.arena();
                job->epoch_key = epoch_key(seed, epoch);
                job->out = job->arena->slot(static_cast<size_t>(slot)) + image_offset;
                if (job->rows < 1) throw nb::value_error("a job needs rows");
                place_rows(*job, slot_rows, attempts);
                if (job->program && image_offset + rows_spanned(*job) * job->program->format.row_bytes() >
                                        job->arena->slot_bytes())
                    throw nb::value_error("the image rows don't fit the slot");
                new (self) SubmittedJob{std::move(job), {}};
            },
            "ring"_a, "slot"_a, "positions"_a, "program"_a.none(), "image_offset"_a, "seed"_a, "epoch"_a,
            "slot_rows"_a.none() = nb::none(), "attempts"_a.none() = nb::none(),
            "``slot_rows``: where the rows are in the slot, for samples that take others' place as their "
            "``attempts``.")
        .def("files", &attach_files, "blob"_a, "ends"_a, "offset"_a, "length"_a)
        .def("pixels", &attach_pixels, "pictures"_a, "rows"_a, "partial"_a = false,
             "Make rows from pixels of an array; with ``partial`` a row -1 is one of another array's.")
        .def(
            "copy",
            [](SubmittedJob& s, const SlotRing& ring, int slot, AnyRows array, Column<int64_t> rows,
               size_t slot_offset, size_t row_bytes, bool partial) {
                attach_copy(s, array, rows, slot_offset, row_bytes, partial,
                            ring.arena()->slot(static_cast<size_t>(slot)));
            },
            "ring"_a, "slot"_a, "array"_a, "rows"_a, "slot_offset"_a, "row_bytes"_a, "partial"_a = false,
            "Copy rows of an array; with ``partial`` a row -1 is one of another array's.")
        .def_prop_ro("done", [](const SubmittedJob& s) { return s.job->remaining == 0; })
        .def(
            "has", [](const SubmittedJob& s, const AtWork& row) { return s.job.get() == row.job; }, "row"_a,
            "Whether a row at work is one of its rows.")
        .def(
            "failures", [](SubmittedJob& s) { return failures_of(*s.job); },
            nb::sig("def failures(self) -> list[tuple[int, str, str]]"),
            "(row, kind, text) of rows that failed.");

    nb::class_<PendingRow>(m, "ForeignRow", "A row whose bytes are no JPEG.")
        .def_prop_ro(
            "data",
            [](PendingRow& r) {
                return nb::ndarray<nb::numpy, const uint8_t, nb::shape<-1>>(r.row.bytes.data(), {r.row.size},
                                                                            nb::find(r));
            },
            "The row's bytes, no copy: there until it is finished or failed.")
        .def(
            "reserve",
            [](PendingRow& r, int height, int width, uint64_t frame_bytes) {
                nb::gil_scoped_release unlocked;
                return r.pool->reserve_for(r.row, {height, width}, frame_bytes);
            },
            "height"_a, "width"_a, "frame_bytes"_a,
            "Wait for the memory that decoding and transforming takes; an error text when it can't be had.")
        .def(
            "finish",
            [](PendingRow& r, Picture rgb, bool truncated) {
                const Size size{static_cast<int>(rgb.shape(0)), static_cast<int>(rgb.shape(1))};
                nb::gil_scoped_release unlocked;
                r.pool->finish_foreign(r.row, rgb.data(), size, truncated);
            },
            "rgb"_a, "truncated"_a)
        .def(
            "fail", [](PendingRow& r, std::string text) { r.pool->fail_foreign(r.row, std::move(text)); },
            "text"_a)
        .def(
            "release", [](PendingRow& r) { r.pool->release_foreign(r.row); },
            "Give back what was reserved, once nothing of it is in use any more.");

    nb::class_<AtWork>(m, "AtWork", "A row at work.")
        .def_prop_ro("kind", [](const AtWork& w) { return desk_name(w.kind); })
        .def_ro("number", &AtWork::number)
        .def_ro("system_id", &AtWork::system_id, "Of its thread, as /proc names it.")
        .def_ro("thread", &AtWork::thread, "As threading.get_ident() names it.")
        .def_ro("row", &AtWork::row)
        .def_ro("rows_begun", &AtWork::rows_begun, "By its thread so far.")
        .def_prop_ro("phase", [](const AtWork& w) { return phase_name(w.phase); })
        .def_ro("begin_s", &AtWork::begin_s,
                "As time.monotonic() counts, later by what it waited for others.");

    nb::class_<Pool>(m, "Pool", "The native threads of a loader.")
        .def(nb::new_([](int workers, int io_threads, size_t read_ahead_bytes, uint64_t side_bytes,
                         const ReadPolicy& reads, std::shared_ptr<Bell> bell) {
                 if (workers < 1 || io_threads < 1) throw nb::value_error("a pool needs threads");
                 return std::make_shared<Pool>(
                     PoolOptions{workers, io_threads, read_ahead_bytes, side_bytes, reads}, std::move(bell));
             }),
             "workers"_a, "io_threads"_a, "read_ahead_bytes"_a, "side_bytes"_a, "reads"_a, "bell"_a)
        .def(
            "submit", [](Pool& p, const SubmittedJob& s, bool first) { p.submit(s.job, first); }, "job"_a,
            "first"_a = false)
        .def(
            "cancel", [](Pool& p, const SubmittedJob& s) { p.cancel(s.job); }, "job"_a)
        .def(
            "take_foreign",
            [](std::shared_ptr<Pool> p) -> std::optional<PendingRow> {
                PendingRow pending{p, {}};
                nb::gil_scoped_release unlocked;
                if (!p->take_foreign(pending.row)) return std::nullopt;
                return pending;
            },
            "Wait for a row that is no JPEG; None when the pool is closed.")
        .def_prop_ro("foreign_waiting", &Pool::foreign_waiting)
        .def("at_work", &Pool::at_work, Unlocked(), "What every thread is at that has a row.")
        .def("give_up", &Pool::give_up, Unlocked(), "row"_a,
             "Give up the row and its job; another thread takes its thread's place. False when it has ended.")
        .def(
            "close", [](Pool& p, int patience_ms) { return p.close(std::chrono::milliseconds(patience_ms)); },
            Unlocked(), "patience_ms"_a, "End the threads; False when some are still inside a system call.")
        .def("stats", &Pool::stats);

    bind_faults(m);
    bind_samples(m);
    bind_checks(m);
}
