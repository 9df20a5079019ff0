// Binds checks of files. A call reads and decodes one file, without the GIL.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include <memory>
#include <string>
#include <utility>

#include "bind/bind.h"
#include "image/check.h"

namespace standpipe {
namespace {

const char* kind_name(const CheckedFile& file) {
    switch (file.outcome.kind) {
        case Outcome::Kind::ok: return "whole";
        case Outcome::Kind::read_error: return "read";
        case Outcome::Kind::decode_error: return "decode";
        case Outcome::Kind::foreign: return "foreign";
        case Outcome::Kind::cancelled: break;
    }
    return "cancelled";
}

std::pair<Int64s::Array, Int64s::Array> file_marks(Column<uint8_t> blob, Column<int64_t> ends) {
    check_paths(blob, ends);
    const size_t count = ends.shape(0);
    Int64s sizes(count), times(count);
    SignalCheck signals;
    {
        Released unlocked;
        const auto* text = reinterpret_cast<const char*>(blob.data());
        int64_t begin = 0;
        for (size_t i = 0; i < count && !signals.raised(); begin = ends.data()[i++]) {
            const FileMark mark = mark_of({text + begin, static_cast<size_t>(ends.data()[i] - begin)});
            sizes.values()[i] = mark.size;
            times.values()[i] = mark.mtime_ns;
        }
    }
    signals.rethrow();
    return {std::move(sizes).array(), std::move(times).array()};
}

}  // namespace

void bind_checks(nb::module_& m) {
    m.def("file_marks", &file_marks, "blob"_a, "ends"_a,
          "Return (sizes in bytes, modification times in ns) of n paths, each (n,); -1 for a file that\n"
          "can't be examined. Raises what a signal handler raises.");

    nb::class_<CheckedFile>(m, "CheckedFile", "A file that was read and, if it is a JPEG, decoded.")
        .def_prop_ro("kind", &kind_name,
                     "'whole'; 'read' or 'decode' for what failed; 'foreign' for files that Pillow decodes; "
                     "or 'cancelled'.")
        .def_prop_ro(
            "text", [](const CheckedFile& file) { return printable(file.outcome.text); },
            nb::sig("def text(self) -> str"), "Error message; empty without an error.")
        .def_prop_ro("damaged", [](const CheckedFile& f) { return f.outcome.damaged; })
        .def_prop_ro("truncated", [](const CheckedFile& f) { return f.outcome.truncated; })
        .def_prop_ro("smoothed", [](const CheckedFile& f) { return f.outcome.smoothed; })
        .def_prop_ro("size", [](const CheckedFile& f) { return f.read.size; })
        .def_prop_ro("mtime_ns", [](const CheckedFile& f) { return f.read.stamp.mtime_ns; })
        .def_prop_ro(
            "data",
            [](CheckedFile& f) { return View<uint8_t>(f.read.buffer.data(), {f.read.size}, nb::find(f)); },
            "The file's bytes, without a copy.")
        .def("reserve", &CheckedFile::reserve, Unlocked(), "frame_bytes"_a,
             "Wait for the memory that Pillow needs, which this object then holds. Returns '' or an error "
             "message.");

    nb::class_<FileChecks>(m, "FileChecks", "Reads files and decodes them completely. Thread-safe.")
        .def(
            nb::new_([](const ReadPolicy& reads, uint64_t max_pixels, int max_scans, bool allow_truncated,
                        bool only_libjpeg, uint64_t side_bytes, uint64_t buffer_bytes) {
                return std::make_shared<FileChecks>(CheckPolicy{
                    {max_pixels, max_scans, allow_truncated, only_libjpeg}, side_bytes, buffer_bytes, reads});
            }),
            "reads"_a, "max_pixels"_a, "max_scans"_a, "allow_truncated"_a, "only_libjpeg"_a, "side_bytes"_a,
            "buffer_bytes"_a)
        .def(
            "check",
            [](FileChecks& checks, const nb::bytes& path, int64_t offset, int64_t length, int64_t crc32c) {
                FileRange range{{path.c_str(), path.size()}, offset, length};
                range.crc32c = crc32c;
                Released unlocked;
                return checks.check(std::move(range));
            },
            "path"_a, "offset"_a, "length"_a, "crc32c"_a = -1,
            "Read and decode bytes [offset, offset + length) of a file; length < 0: to its end.\n"
            "``crc32c``: what the bytes must have; -1: any.")
        .def("close", &FileChecks::close, Unlocked(),
             "End all waits. Files not decoded by then are 'cancelled'.");
}

}  // namespace standpipe
