// Binds the policy by which files are read, and the measurement of reads.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bind/bind.h"
#include "io/read_times.h"
#include "system/checksum.h"

namespace standpipe {
namespace {

constexpr size_t kKeptBytes = 1 << 20;  // buffers for records of usual size, which are used again

std::vector<FileRange> ranges_of(Column<uint8_t> blob, Column<int64_t> ends, Column<int64_t> offset,
                                 Column<int64_t> length, uint64_t max_bytes) {
    if (offset.shape(0) != ends.shape(0) || length.shape(0) != ends.shape(0))
        throw nb::value_error("files: one path, one offset and one length each");
    check_paths(blob, ends);
    std::vector<FileRange> files;
    files.reserve(ends.shape(0));
    int64_t begin = 0;
    for (size_t i = 0; i < ends.shape(0); begin = ends.data()[i++]) {
        const int64_t end = ends.data()[i];
        files.push_back(
            {{reinterpret_cast<const char*>(blob.data()) + begin, static_cast<size_t>(end - begin)},
             offset.data()[i],
             length.data()[i],
             max_bytes});
    }
    return files;
}

using Known = std::optional<Column<int64_t>>;

// Returns the CRC-32C of each range, -1 where it can't be read; and these ranges' numbers and error messages.
std::pair<Int64s::Array, std::vector<std::pair<size_t, std::string>>> crc32c_of_ranges(
    Column<uint8_t> blob, Column<int64_t> ends, Column<int64_t> offset, Column<int64_t> length,
    Known file_bytes, Known mtime_ns, Known known) {
    std::vector<FileRange> ranges = ranges_of(blob, ends, offset, length, UINT64_MAX);
    for (const auto& [column, fact] :
         {std::pair(&file_bytes, &FileRange::file_bytes), std::pair(&mtime_ns, &FileRange::mtime_ns),
          std::pair(&known, &FileRange::crc32c)}) {
        if (!*column) continue;
        if ((*column)->shape(0) != ranges.size()) throw nb::value_error("files: one fact each");
        for (size_t i = 0; i < ranges.size(); ++i) ranges[i].*fact = (*column)->data()[i];
    }
    Int64s sums(ranges.size());
    std::vector<std::pair<size_t, std::string>> errors;
    {
        Released unlocked;
        const auto buffers = std::make_shared<BufferPool>(kKeptBytes);
        const auto reader = std::make_shared<Reader>(ReadPolicy{}, nullptr, 0);
        for (size_t i = 0; i < ranges.size(); ++i) {
            const ReadResult read = reader->read(ranges[i], *buffers);
            const bool is_read = read.error.empty();
            sums.values()[i] = is_read ? crc32c({read.buffer.data(), read.size}) : -1;
            if (!is_read) errors.emplace_back(i, read.error);
        }
    }
    return {std::move(sums).array(), std::move(errors)};
}

View<double> took_s(nb::pointer_and_handle<ReadTimes> times) { return view_of(times.p->took_s, times.h); }

}  // namespace

void bind_reads(nb::module_& m) {
    nb::class_<ReadPolicy>(m, "ReadPolicy", "Says how often a read is tried, and when.")
        .def(nb::init<int, double, double>(), "retries"_a, "backoff_s"_a, "hedge_after_s"_a,
             "``retries``: tries after the first one. ``hedge_after_s``: time until a slow read gets a\n"
             "second one beside it; 0: never.");

    nb::class_<ReadTimes>(m, "ReadTimes", "Durations and counts of reads.")
        .def_prop_ro("took_s", &took_s, "(n,) seconds of each read that succeeded, without buffer waits.")
        .def_ro("bytes", &ReadTimes::bytes)
        .def_ro("blocked", &ReadTimes::blocked, "Number of these reads that waited for storage.")
        .def_ro("failed", &ReadTimes::failed)
        .def_ro("error", &ReadTimes::error, "Error message of the last read that failed; empty without one.")
        .def_ro("hung", &ReadTimes::hung, "Number of reads that had not ended when the others had.")
        .def_ro("seconds", &ReadTimes::seconds, "Seconds from the beginning to the end of all reads.");

    m.def("most_kept_open", &most_kept_open,
          "Return how many files a process may keep open at once, for samples that are parts of files.");

    m.def(
        "crc32c_of_ranges", &crc32c_of_ranges, "blob"_a, "ends"_a, "offset"_a, "length"_a,
        "file_bytes"_a.none(), "mtime_ns"_a.none(), "crc32c"_a.none(),
        "Read parts of files, and return their CRC-32C, (n,), and (number, error message) of each part that\n"
        "can't be read, whose CRC is -1. The arrays are those of ``Job.files``.");

    m.def(
        "time_reads",
        [](Column<uint8_t> blob, Column<int64_t> ends, Column<int64_t> offset, Column<int64_t> length,
           uint64_t max_bytes, bool again, int threads, double seconds, double patience_s,
           const ReadPolicy& policy, size_t buffer_bytes) {
            ReadTask task{ranges_of(blob, ends, offset, length, max_bytes),
                          again,
                          threads,
                          seconds,
                          patience_s,
                          buffer_bytes};
            SignalCheck signals;
            const ReadTimes times = unlocked(
                [&] { return time_reads(std::move(task), policy, [&signals] { return signals.raised(); }); });
            signals.rethrow();
            return times;
        },
        "blob"_a, "ends"_a, "offset"_a, "length"_a, "max_bytes"_a, "again"_a, "threads"_a, "seconds"_a,
        "patience_s"_a, "policy"_a, "buffer_bytes"_a,
        "Read files with ``threads`` threads, once, or with ``again`` until ``seconds`` are over.\n"
        "``patience_s``: wait for reads that have begun. Raises what a signal handler raises.");
}

}  // namespace standpipe
