// What Python needs to say how files are read, and to ask how long that takes.
#include <nanobind/stl/string.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bind/bind.h"
#include "io/read_times.h"

namespace standpipe {
namespace {

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

// A view: it keeps what it is of.
nb::ndarray<nb::numpy, const double, nb::shape<-1>> took_s(nb::pointer_and_handle<ReadTimes> times) {
    return {times.p->took_s.data(), {times.p->took_s.size()}, times.h};
}

}  // namespace

void bind_reads(nb::module_& m) {
    nb::class_<ReadPolicy>(m, "ReadPolicy", "How often a read is tried, and when.")
        .def(nb::init<int, double, double>(), "retries"_a, "backoff_s"_a, "hedge_after_s"_a,
             "``hedge_after_s``: 0 for never.");

    nb::class_<ReadTimes>(m, "ReadTimes", "How long reads took.")
        .def_prop_ro("took_s", &took_s, "(n,) of each that succeeded.")
        .def_ro("bytes", &ReadTimes::bytes)
        .def_ro("blocked", &ReadTimes::blocked, "Of these, how many storage made wait.")
        .def_ro("failed", &ReadTimes::failed)
        .def_ro("error", &ReadTimes::error, "Of one that failed.")
        .def_ro("hung", &ReadTimes::hung, "How many had not ended when the others had.")
        .def_ro("seconds", &ReadTimes::seconds, "Of all of it.");

    m.def("most_kept_open", &most_kept_open,
          "How many files a reader keeps open at most, of which samples are parts.");

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
            ReadTimes times;
            {
                nb::gil_scoped_release unlocked;
                times = time_reads(std::move(task), policy, [&signals] { return signals.raised(); });
            }
            signals.rethrow();
            return times;
        },
        "blob"_a, "ends"_a, "offset"_a, "length"_a, "max_bytes"_a, "again"_a, "threads"_a, "seconds"_a,
        "patience_s"_a, "policy"_a, "buffer_bytes"_a,
        "Read files, ``threads`` at once, until all are read, or ``again`` and again, until ``seconds`` are "
        "over. Raises what a signal's handler does.");
}

}  // namespace standpipe
