// Binds the native threads of a loader, and their jobs.
#include "pool/pool.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "bind/bind.h"
#include "bind/job.h"

namespace standpipe {
namespace {

using Table64 = nb::ndarray<const int64_t, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;
using Windows = nb::ndarray<const int32_t, nb::shape<-1, -1>, nb::c_contig, nb::device::cpu>;
using Areas = nb::ndarray<const int64_t, nb::shape<-1, 5>, nb::c_contig, nb::device::cpu>;
using AnyRows = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

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

const char* heartbeat_name(Heartbeat::Kind kind) {
    constexpr const char* names[] = {"decoding", "reading", "Pillow"};
    return names[static_cast<size_t>(kind)];
}

const char* phase_name(Phase phase) {
    constexpr const char* names[] = {"reading", "waiting", "decoding"};
    return names[static_cast<size_t>(phase)];
}

// Sets which rows of the slot a job writes, and which attempts they are.
void place_rows(Job& job, const std::optional<Column<int64_t>>& slot_rows,
                const std::optional<Column<int64_t>>& attempts) {
    if (slot_rows) {
        job.slot_rows.emplace();
        check_rows(slot_rows->shape(0), job.rows, "slot_rows: one per row");
        for (size_t i = 0; i < slot_rows->shape(0); ++i) {
            const int64_t row = slot_rows->data()[i];
            if (row < 0 || static_cast<uint64_t>(row) >= job.arena->slot_bytes())
                throw nb::value_error("a row is outside the slot");
            job.slot_rows->push_back(static_cast<int>(row));
        }
    }
    if (attempts) {
        check_rows(attempts->shape(0), job.rows, "attempts: one per row");
        job.attempts.emplace(attempts->data(), attempts->data() + attempts->shape(0));
    }
}

// Checks numbers of rows. `partial`: a row may be -1, which is in another array.
void check_records(Column<int64_t> rows, size_t records, bool partial) {
    for (size_t i = 0; i < rows.shape(0); ++i) {
        const int64_t row = rows.data()[i];
        if (partial && row == -1) continue;
        if (row < 0 || static_cast<size_t>(row) >= records)
            throw nb::value_error("a row number is outside its array");
    }
}

JobInput& input_of(SubmittedJob& s, size_t number) {
    if (number >= s.job->inputs.size()) throw nb::index_error("input");
    return s.job->inputs[number];
}

void attach_files(SubmittedJob& s, size_t input, Column<uint8_t> blob, Column<int64_t> ends,
                  Column<int64_t> offset, Column<int64_t> length, std::optional<Column<int64_t>> file_bytes,
                  std::optional<Column<int64_t>> mtime_ns, std::optional<Column<int64_t>> crc32c) {
    check_rows(ends.shape(0), s.job->rows, "files: one path per row");
    check_rows(offset.shape(0), s.job->rows, "files: one offset per row");
    check_rows(length.shape(0), s.job->rows, "files: one length per row");
    check_paths(blob, ends);
    FileInput& files = input_of(s, input).files.emplace(
        FileInput{blob.data(), ends.data(), offset.data(), length.data(), {}, {}, {}});
    for (const auto& [column, known] :
         {std::pair(&files.file_bytes, &file_bytes), std::pair(&files.mtime_ns, &mtime_ns),
          std::pair(&files.crc32c, &crc32c)}) {
        if (!*known) continue;
        check_rows((*known)->shape(0), s.job->rows, "files: one size, time and CRC per row");
        *column = (*known)->data();
        s.arrays.push_back(nb::cast(**known));
    }
    for (nb::object array : {nb::cast(blob), nb::cast(ends), nb::cast(offset), nb::cast(length)})
        s.arrays.push_back(array);
}

void attach_sizes(SubmittedJob& s, Table64 sizes) {
    check_rows(sizes.shape(0), s.job->rows, "sizes: one per row");
    s.job->annotated.clear();
    for (size_t i = 0; i < sizes.shape(0); ++i)
        s.job->annotated.push_back(
            {static_cast<int>(sizes.data()[2 * i]), static_cast<int>(sizes.data()[2 * i + 1])});
}

void attach_windows(SubmittedJob& s, Windows windows) {
    check_rows(windows.shape(0), s.job->rows, "windows: those of each row");
    if (!s.job->program || windows.shape(1) != 4 * s.job->program->windows)
        throw nb::value_error("windows: four numbers for each");
    s.job->windows.assign(windows.data(), windows.data() + windows.size());
}

void make_job(SubmittedJob* self, const SlotRing& ring, int slot, Column<int64_t> positions,
              std::shared_ptr<Program> program, const std::vector<std::tuple<size_t, size_t>>& outputs,
              uint64_t seed, uint64_t epoch, std::optional<Column<int64_t>> slot_rows,
              std::optional<Column<int64_t>> attempts) {
    auto job = std::make_shared<Job>();
    job->program = std::move(program);
    job->rows = static_cast<int>(positions.shape(0));
    job->positions.assign(positions.data(), positions.data() + positions.shape(0));
    job->arena = ring.arena();
    job->epoch_key = epoch_key(seed, epoch);
    for (const auto& [offset, stride] : outputs)
        job->outputs.push_back({job->arena->slot(static_cast<size_t>(slot)) + offset, stride});
    if (job->rows < 1) throw nb::value_error("a job needs rows");
    if (job->program) job->inputs.resize(job->program->inputs.size());
    place_rows(*job, slot_rows, attempts);
    if (outputs.size() != (job->program ? job->program->heads.size() : 0))
        throw nb::value_error("outputs: one for each head");
    for (size_t i = 0; i < outputs.size(); ++i) {
        const auto& [offset, stride] = outputs[i];
        const size_t bytes = job->program->heads[i].format.row_bytes();
        if (stride < bytes || offset + (rows_spanned(*job) - 1) * stride + bytes > job->arena->slot_bytes())
            throw nb::value_error("the image rows don't fit the slot");
    }
    new (self) SubmittedJob{std::move(job), {}};
}

// Sets where a head whose rows differ in size writes each row of the slot: the first byte there, and height
// and width of the picture and of its canvas.
void set_areas(SubmittedJob& s, size_t head, Areas areas) {
    Job& job = *s.job;
    if (head >= job.outputs.size()) throw nb::index_error("head");
    if (areas.shape(0) < rows_spanned(job)) throw nb::value_error("areas: one for each row");
    const RowFormat& format = job.program->heads[head].format;
    Output& output = job.outputs[head];
    const auto before = static_cast<size_t>(output.first - job.arena->slot(0)) % job.arena->stride_bytes();
    const auto most = static_cast<int64_t>(job.arena->slot_bytes() - before);
    output.areas.clear();
    for (size_t i = 0; i < areas.shape(0); ++i) {
        const int64_t* const area = areas.data() + 5 * i;
        const auto within = [&](size_t side, int64_t limit) {
            return area[side] >= 0 && area[side] <= limit;
        };
        const bool fits = within(0, most) && within(3, kMostPx) && within(4, kMostPx) && within(1, area[3]) &&
                          within(2, area[4]);
        const auto size = [&](size_t side) {
            return Size{static_cast<int>(area[side]), static_cast<int>(area[side + 1])};
        };
        if (!fits || format.bytes_of(size(3)) > static_cast<size_t>(most - area[0]))
            throw nb::value_error("a picture doesn't fit its canvas, or the canvas the slot");
        output.areas.push_back({output.first + area[0], size(1), size(3)});
    }
}

// Attaches an array of pictures or masks, from which the job makes an input of its rows.
void attach_pixels(SubmittedJob& s, size_t input, PixelArray array, Column<int64_t> rows, bool partial) {
    JobInput& to = input_of(s, input);
    check_rows(rows.shape(0), s.job->rows, "pixels: one record per row");
    if (array.ndim() != 3 && array.ndim() != 4) throw nb::value_error("pixels: (records, H, W, C)");
    const int channels = array.ndim() == 3 ? 1 : static_cast<int>(array.shape(3));
    check_records(rows, array.shape(0), partial);
    const Size size{static_cast<int>(array.shape(1)), static_cast<int>(array.shape(2))};
    to.pixels.push_back({array.data(), RecordsOfRows(rows.data()), size, channels});
    s.arrays.push_back(nb::cast(array));
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
    s.job->copies.push_back({static_cast<const uint8_t*>(array.data()), RecordsOfRows(rows.data()), row_bytes,
                             slot + slot_offset});
    s.arrays.push_back(nb::cast(array));
    s.arrays.push_back(nb::cast(rows));
}

void attach_cache(SubmittedJob& s, std::shared_ptr<CacheStore> store, Column<int64_t> records,
                  std::shared_ptr<Program> before, bool checks) {
    check_rows(records.shape(0), s.job->rows, "cache: one record per row");
    if (store) records_of(records, store->records());
    if (before && s.job->inputs.size() != 1) throw nb::value_error("cache: it keeps one input");
    if (before &&
        (before->heads.size() != 1 || before->format().type != ElementType::u8 || before->format().planar))
        throw nb::value_error("cache: what is kept is (height, width, channels) uint8");
    if (before && before->windows > 0) throw nb::value_error("cache: no boxes decide what is kept");
    if (before && before->format().channels != s.job->program->inputs.front().channels)
        throw nb::value_error("cache: the program takes another number of channels");
    s.job->cache = JobCache{std::move(store), records.data(), std::move(before), checks};
    s.arrays.push_back(nb::cast(records));
}

nb::list failures_of(Job& job) {
    nb::list out;
    for (const Failure& f : job.bad_rows())
        out.append(nb::make_tuple(job.slot_row(f.row), f.input, kind_name(f.outcome.kind),
                                  printable(f.outcome.text)));
    return out;
}

nb::list threads_of(const PoolStats& stats) {
    nb::list out;
    for (const ThreadStats& t : stats.threads)
        out.append(nb::make_tuple(heartbeat_name(t.kind), t.number, t.rows, t.busy_s));
    return out;
}

void bind_stats(nb::module_& m) {
    nb::class_<PoolStats>(m, "PoolStats", "Counters of a loader's native threads since they started.")
        .def_ro("rows", &PoolStats::rows, "Rows that were made.")
        .def_ro("bytes", &PoolStats::bytes, "Bytes of files that were read.")
        .def_ro("decode_s", &PoolStats::decode_s, "Seconds of work of all threads that make rows.")
        .def_ro("decode_wait_s", &PoolStats::decode_wait_s, "Seconds without work of all decoding threads.")
        .def_prop_ro(
            "decode_latency", [](const PoolStats& s) { return counts_of(s.decode); }, kCounts)
        .def_ro("foreign", &PoolStats::foreign, "Rows that Pillow decoded.")
        .def_ro("damaged", &PoolStats::damaged, "Rows of damaged files.")
        .def_ro("truncated", &PoolStats::truncated, "Rows of files that end too soon.")
        .def_ro("redecoded", &PoolStats::redecoded, "Rows that libjpeg-turbo decoded again.")
        .def_ro("read_s", &PoolStats::read_s, "Seconds of work of all reads.")
        .def_ro("read_wait_s", &PoolStats::read_wait_s,
                "Seconds without work of all threads that read ahead.")
        .def_prop_ro(
            "read_latency", [](const PoolStats& s) { return counts_of(s.read); }, kCounts)
        .def_prop_ro("threads", &threads_of,
                     nb::sig("def threads(self) -> list[tuple[str, int, int, float]]"),
                     "(kind, number, rows, seconds of work) of every thread.")
        .def_ro("decoders", &PoolStats::decoders, "Number of decoding threads that may work at once.")
        .def_ro("readers", &PoolStats::readers, "Number of threads that read ahead, while that pays.")
        .def_ro("retries", &PoolStats::retries, "Number of retries of reads.")
        .def_ro("hedged", &PoolStats::hedged, "Number of reads that got a second one.")
        .def_ro("slowest_read_s", &PoolStats::slowest_read_s, "Seconds of the slowest try that has ended.")
        .def_ro("opens", &PoolStats::opens, "Number of files that were opened.")
        .def_ro("ranges", &PoolStats::ranges, "Number of ranges that were read; neighbours are one.")
        .def_ro("side_bytes", &PoolStats::side_bytes, "Bytes of the side arena in use.")
        .def_ro("side_peak_bytes", &PoolStats::side_peak_bytes, "Largest value of ``side_bytes``.")
        .def_ro("read_ahead_bytes", &PoolStats::read_ahead_bytes, "Bytes of buffers for encoded samples.")
        .def_ro("read_ahead_peak_bytes", &PoolStats::read_ahead_peak_bytes, "Largest value of that.")
        .def_ro("reading_ahead", &PoolStats::reading_ahead, "True while threads read ahead.");
}

void bind_job(nb::module_& m) {
    nb::class_<SubmittedJob>(m, "Job", "The rows of one slot that a pool makes.")
        .def("__init__", &make_job, "ring"_a, "slot"_a, "positions"_a, "program"_a.none(), "outputs"_a,
             "seed"_a, "epoch"_a, "slot_rows"_a.none() = nb::none(), "attempts"_a.none() = nb::none(),
             "``outputs``: (offset, stride) in bytes, for each head of the program, of its rows in the\n"
             "slot. ``program``: None to copy only. ``slot_rows``: rows of the slot to write; None: the\n"
             "first ones. ``attempts``: of samples that replace bad ones; None: 0.")
        .def(
            "areas", &set_areas, "head"_a, "areas"_a,
            "Set where a head without a fixed size writes the rows of the slot. ``areas``: (rows, 5) int64:\n"
            "the first byte from the head's own first one on, height and width of the picture, and of the\n"
            "canvas in whose upper left it is.")
        .def("files", &attach_files, "input"_a, "blob"_a, "ends"_a, "offset"_a, "length"_a,
             "file_bytes"_a.none() = nb::none(), "mtime_ns"_a.none() = nb::none(),
             "crc32c"_a.none() = nb::none(),
             "Make an input of the rows from files. ``blob``, ``ends``: paths; path i ends at byte\n"
             "ends[i]. ``offset``, ``length``: of the sample, in bytes; length -1: to the end.\n"
             "``file_bytes``, ``mtime_ns``: of the whole file when it was indexed; ``crc32c``: of the\n"
             "sample's bytes then; -1 or None: unknown.")
        .def("sizes", &attach_sizes, "sizes"_a,
             "Refuse rows whose first input has another (height, width) in pixels. ``sizes``: (rows, 2) "
             "int64.")
        .def("windows", &attach_windows, "windows"_a,
             "Make the rows with crops that boxes have decided. ``windows``: (rows, 4 × windows) int32 of "
             "``trace``.")
        .def("frames", &attach_frames, "frames"_a,
             "Make frames instead of rows of the slot. ``frames``: of each row of the slot, in the size\n"
             "that the program makes.")
        .def("compose", &attach_composer, "composer"_a, "frames"_a, "numbers"_a,
             "Make the rows of frames, by ``composer``, whose last program the job has. ``numbers``: in\n"
             "``frames``, of each row's, (rows × composer.frames,) int32; -1 for those that aren't used.")
        .def(
            "paste", &attach_pasted, "points"_a, "ends"_a, "pictures"_a,
            "Paste shapes on pictures of the composer. ``points``, (n, 2) float32, in pixels of the pictures "
            "that\n"
            "they are taken from; the end of each shape; and the end of each picture's shapes, row by row.")
        .def("pixels", &attach_pixels, "input"_a, "array"_a, "rows"_a, "partial"_a = false,
             "Make an input of the rows from an array, (records, H, W, C) or (records, H, W).\n"
             "``partial``: a row -1 is in another array.")
        .def(
            "copy",
            [](SubmittedJob& s, const SlotRing& ring, int slot, AnyRows array, Column<int64_t> rows,
               size_t slot_offset, size_t row_bytes, bool partial) {
                attach_copy(s, array, rows, slot_offset, row_bytes, partial,
                            ring.arena()->slot(static_cast<size_t>(slot)));
            },
            "ring"_a, "slot"_a, "array"_a, "rows"_a, "slot_offset"_a, "row_bytes"_a, "partial"_a = false,
            "Copy rows of an array into the slot. ``partial``: a row -1 is in another array.")
        .def("cache", &attach_cache, "store"_a.none(), "records"_a, "before"_a.none(), "checks"_a,
             "Take rows from a cache, and store those that it lacks; ``store``: None without a cache.\n"
             "``before``: program whose pixels are stored, from which the job's program continues; None:\n"
             "files' bytes are stored. ``checks``: whether to compare a row with its file before use.")
        .def_prop_ro("done", [](const SubmittedJob& s) { return s.job->remaining == 0; })
        .def(
            "has", [](const SubmittedJob& s, const AtWork& row) { return s.job == row.job.lock(); }, "row"_a,
            "Return whether a row at work is one of this job's.")
        .def(
            "failures", [](SubmittedJob& s) { return failures_of(*s.job); },
            nb::sig("def failures(self) -> list[tuple[int, int, str, str]]"),
            "Return (row, number of the input, kind of error, message) of each row that failed.");
}

void bind_at_work(nb::module_& m) {
    nb::class_<AtWork>(m, "AtWork", "A row that a thread is making.")
        .def_prop_ro("kind", [](const AtWork& w) { return heartbeat_name(w.kind); })
        .def_ro("number", &AtWork::number)
        .def_ro("system_id", &AtWork::system_id, "Number of its thread in /proc.")
        .def_ro("thread", &AtWork::thread, "Number of its thread, as threading.get_ident() returns it.")
        .def_ro("row", &AtWork::row)
        .def_ro("rows_begun", &AtWork::rows_begun, "Rows that its thread has begun so far.")
        .def_prop_ro("phase", [](const AtWork& w) { return phase_name(w.phase); })
        .def_ro("begin_s", &AtWork::begin_s, "Begin by time.monotonic(), plus waits for other rows, in s.");
}

void bind_threads(nb::module_& m) {
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
        .def("employ", &Pool::employ, Unlocked(), "workers"_a,
             "Let ``workers`` of the decoding threads work at once, at least one; the others wait.")
        .def("take_foreign", &take_foreign, nb::sig("def take_foreign(self) -> ForeignRow | None"),
             "Wait for a row that Pillow decodes. Returns None when the pool is closed.")
        .def_prop_ro("foreign_waiting", &Pool::foreign_waiting)
        .def_prop_ro(
            "broken",
            [](const Pool& p) -> std::optional<std::string> {
                const auto broken = p.broken();
                if (!broken) return std::nullopt;
                return std::string(heartbeat_name(broken->kind)) + " thread " +
                       std::to_string(broken->number) + " ended by an error: " + broken->error;
            },
            "Description of the first thread that an error ended; None without one.")
        .def("at_work", &Pool::at_work, Unlocked(), "Return the rows that threads are making now.")
        .def("give_up", &Pool::give_up, Unlocked(), "row"_a,
             "Give up a row and its job; a new thread replaces the row's thread. Returns False if it has "
             "ended.")
        .def(
            "close", [](Pool& p, int patience_ms) { return p.close(std::chrono::milliseconds(patience_ms)); },
            Unlocked(), "patience_ms"_a, "End the threads. Returns False if some are inside a system call.")
        .def("stats", &Pool::stats);
}

}  // namespace

void bind_pool(nb::module_& m) {
    bind_stats(m);
    bind_job(m);
    bind_foreign_row(m);
    bind_at_work(m);
    bind_threads(m);
}

}  // namespace standpipe
