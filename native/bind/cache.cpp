// What Python needs of a cache's store: to give it room, to look at it, and rows one at a time.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "bind/bind.h"
#include "cache/check.h"
#include "cache/store.h"
#include "io/sums.h"
#include "system/checksum.h"

namespace standpipe {
namespace {

// What the system said, as Python says it.
template <typename Call>
auto with_os_errors(Call&& call) {
    try {
        return call();
    } catch (const std::system_error& error) {
        errno = error.code().value();
        PyErr_SetFromErrno(PyExc_OSError);
        throw nb::python_error();
    }
}

uint64_t record_of(const CacheStore& store, uint64_t record) {
    if (record >= store.records()) throw nb::index_error("the set has no such record");
    return record;
}

// A row's bytes, if they are there and right; and what was found.
using TakenRow = std::pair<std::optional<Bytes>, std::optional<CachedRow>>;

TakenRow take(CacheStore& store, uint64_t record, const std::optional<nb::bytes>& path) {
    record_of(store, record);
    const std::string file = path ? std::string(path->c_str(), path->size()) : std::string();
    std::unique_ptr<uint8_t[]> bytes;
    std::optional<CachedRow> row;
    bool is_right = false;
    {
        nb::gil_scoped_release unlocked;
        row = store.find(record);
        if (!row) {
            store.count_miss();
        } else if (!path || is_as_stored(store, record, *row, file)) {
            bytes = std::make_unique_for_overwrite<uint8_t[]>(row->length);
            is_right = store.read(record, *row, bytes.get());
        }
    }
    if (!is_right) return {std::nullopt, row};
    nb::capsule owner(bytes.get(), [](void* p) noexcept { delete[] static_cast<uint8_t*>(p); });
    return {Bytes(bytes.release(), {row->length}, owner), row};
}

std::optional<Bytes> get(CacheStore& store, uint64_t record) {
    return take(store, record, std::nullopt).first;
}

bool put(CacheStore& store, uint64_t record, Column<uint8_t> bytes, const Stamp& stamp, bool damaged,
         bool truncated, const std::optional<CachedRow>& stale) {
    record_of(store, record);
    const auto replaced = stale ? std::optional(stale->stamp) : std::nullopt;
    nb::gil_scoped_release unlocked;
    const bool stored =
        store.put(record, {bytes.data(), bytes.shape(0)}, stamp, damaged, truncated, replaced);
    if (stored) store.set_checked(record);
    return stored;
}

using Found = nb::ndarray<nb::numpy, bool, nb::shape<-1>>;

Found have(CacheStore& store, uint64_t first, uint64_t stop) {
    if (first > stop || stop > store.records()) throw nb::index_error("the set has no such records");
    const size_t count = stop - first;
    auto found = std::make_unique_for_overwrite<bool[]>(count);
    {
        nb::gil_scoped_release unlocked;
        store.have(first, {found.get(), count});
    }
    nb::capsule owner(found.get(), [](void* p) noexcept { delete[] static_cast<bool*>(p); });
    return Found(found.release(), {count}, owner);
}

nb::bytes table_header(uint64_t records, uint64_t salt) {
    const CacheHeader header = cache_header(records, salt);
    return nb::bytes(header.data(), header.size());
}

void check_ranges(Column<int64_t> begins, Column<int64_t> sizes, int64_t end) {
    if (begins.shape(0) != sizes.shape(0)) throw nb::value_error("a range has a begin and a size");
    for (size_t i = 0; i < sizes.shape(0); ++i) {
        const int64_t begin = begins.data()[i], size = sizes.data()[i];
        if (begin < 0 || size < 0 || begin > end || size > end - begin)
            throw nb::value_error("a range is outside");
    }
}

Numbers<uint32_t>::Array crc32c_of(Column<uint8_t> bytes, Column<int64_t> begins, Column<int64_t> sizes) {
    check_ranges(begins, sizes, static_cast<int64_t>(bytes.shape(0)));
    Numbers<uint32_t> out(sizes.shape(0));
    {
        nb::gil_scoped_release unlocked;
        for (size_t i = 0; i < sizes.shape(0); ++i)
            out.values()[i] = crc32c({bytes.data() + begins.data()[i], static_cast<size_t>(sizes.data()[i])});
    }
    return std::move(out).array();
}

Numbers<uint32_t>::Array crc32c_of_file(int file, Column<int64_t> begins, Column<int64_t> sizes) {
    check_ranges(begins, sizes, INT64_MAX);
    Numbers<uint32_t> out(sizes.shape(0));
    SumsResult result;
    {
        nb::gil_scoped_release unlocked;
        result =
            read_sums(file, {begins.data(), begins.shape(0)}, {sizes.data(), sizes.shape(0)}, out.values());
    }
    switch (result.fault) {
        case SumsFault::none: break;
        case SumsFault::cant_read:
            errno = result.error;
            PyErr_SetFromErrno(PyExc_OSError);
            throw nb::python_error();
        case SumsFault::too_short:
            PyErr_SetString(PyExc_EOFError, "the file ends too soon");
            throw nb::python_error();
    }
    return std::move(out).array();
}

std::optional<uint32_t> checksum_by(const std::string& path, Column<uint8_t> bytes) {
    const ChecksumPath* way = checksum_path(path.c_str());
    if (!way) return std::nullopt;
    return way->take({bytes.data(), bytes.shape(0)});
}

void bind_values(nb::module_& m) {
    nb::class_<Stamp>(m, "Stamp", "Of a file, as it was when it was read; zeros of none.")
        .def(
            "__init__",
            [](Stamp* self, int64_t file_bytes, int64_t mtime_ns, int64_t ctime_ns, bool racy) {
                new (self) Stamp{file_bytes, mtime_ns, ctime_ns, racy};
            },
            "file_bytes"_a = 0, "mtime_ns"_a = 0, "ctime_ns"_a = 0, "racy"_a = false)
        .def_ro("file_bytes", &Stamp::file_bytes)
        .def_ro("mtime_ns", &Stamp::mtime_ns, "When it was modified, as its owner says.")
        .def_ro("ctime_ns", &Stamp::ctime_ns, "When its inode was changed, as the system says.")
        .def_ro("racy", &Stamp::racy, "Whether another change might bear the same times.");

    nb::class_<CachedRow>(m, "CachedRow", "A row that is stored.")
        .def_ro("extent", &CachedRow::extent)
        .def_ro("offset", &CachedRow::offset)
        .def_ro("length", &CachedRow::length)
        .def_ro("checksum", &CachedRow::checksum)
        .def_ro("spilled", &CachedRow::spilled)
        .def_ro("damaged", &CachedRow::damaged)
        .def_ro("truncated", &CachedRow::truncated)
        .def_ro("stamp", &CachedRow::stamp, "Of the file that it was made of.");

    nb::class_<CacheStats>(m, "CacheStats",
                           "What this process did with a set, in rows where nothing else is said.")
        .def_ro("hits", &CacheStats::hits)
        .def_ro("misses", &CacheStats::misses)
        .def_ro("stored", &CacheStats::stored)
        .def_ro("skipped", &CacheStats::skipped, "No room, a full queue, or another one that stores it.")
        .def_ro("stale", &CacheStats::stale)
        .def_ro("errors", &CacheStats::errors, "What was wrong, or couldn't be read or written.")
        .def_ro("hit_bytes", &CacheStats::hit_bytes)
        .def_ro("stored_bytes", &CacheStats::stored_bytes)
        .def_ro("spilled_hits", &CacheStats::spilled_hits)
        .def_ro("spilled_stored", &CacheStats::spilled_stored);

    nb::class_<Wants>(m, "CacheWants", "What a store wants of whoever gives it extents.")
        .def_ro("extent", &Wants::extent, "Whether it wants one.")
        .def_ro("row_bytes", &Wants::row_bytes, "Of the largest row there was; less room is of no use.")
        .def_ro("skipped", &Wants::skipped, "Whether a row wasn't stored for want of room.")
        .def_ro("memory", &Wants::memory, "Whether it takes an extent in memory.")
        .def_ro("spill", &Wants::spill, "Whether it takes one of the spill.");
}

void bind_store(nb::module_& m) {
    m.attr("CACHE_HEADER_BYTES") = kCacheHeaderBytes;
    m.attr("CACHE_ENTRY_BYTES") = kCacheEntryBytes;
    m.attr("CACHE_SPILLED") = kCacheSpilled;
    m.attr("MOST_EXTENTS") = kMostExtents;
    m.attr("MOST_CACHED_BYTES") = kMostCachedBytes;
    nb::class_<CacheStore>(m, "CacheStore", "Rows of a set that processes of this machine share.")
        .def(nb::new_([](int directory, uint64_t records, uint64_t salt, bool writes, size_t queue_bytes) {
                 return with_os_errors([&] {
                     return std::make_shared<CacheStore>(directory, records, salt, writes, queue_bytes);
                 });
             }),
             "directory"_a, "records"_a, "salt"_a, "writes"_a, "queue_bytes"_a,
             "``directory``: a descriptor of the set's folder. Raises ValueError for a table that isn't this "
             "set's, RuntimeError for another version's, and OSError.")
        .def_static("table_header", &table_header, "records"_a, "salt"_a, "What a set's table begins with.")
        .def(
            "set_spill",
            [](CacheStore& store, int directory, int64_t patience_ms) {
                with_os_errors([&] { store.set_spill(directory, std::chrono::milliseconds(patience_ms)); });
            },
            "directory"_a, "patience_ms"_a = CacheDisk::kPatience.count(),
            "A descriptor of the folder of spilled extents; how long a row is waited for, until that disk is "
            "given up.")
        .def(
            "find", [](CacheStore& store, uint64_t record) { return store.find(record_of(store, record)); },
            Unlocked(), "record"_a, "Where the record's row lies.")
        .def("get", &get, "record"_a, "The record's row. Counts a hit or a miss.")
        .def("take", &take, "record"_a, "path"_a.none(),
             "Its row, or None; and what was found, which is wrong where there is no row: it can't be read, "
             "or its "
             "file has changed. The file of that path is looked at once until ``forget_checks``, and none "
             "for None.")
        .def("put", &put, "record"_a, "row"_a, "stamp"_a = Stamp(), "damaged"_a = false,
             "truncated"_a = false, "stale"_a = nb::none(),
             "Store a row, or queue it for the spill, where none is, or in the place of the one that was "
             "found "
             "``stale``. Whether that was done; then its file counts as looked at.")
        .def("have", &have, "first"_a, "stop"_a, "(stop - first,) whether there is an entry for each record.")
        .def(
            "add_extent",
            [](CacheStore& store, uint32_t number, int file, uint64_t begin, uint64_t end, bool spilled) {
                return with_os_errors([&] { return store.add_extent(number, file, begin, end, spilled); });
            },
            "number"_a, "file"_a, "begin"_a, "end"_a, "spilled"_a,
            "Give it bytes [begin, end) of a file, by a descriptor, to write to. False in a tier that takes "
            "none, "
            "since writing to it failed.")
        .def("wants", &CacheStore::wants)
        .def(
            "wait", [](CacheStore& store, int64_t ms) { return store.wait(std::chrono::milliseconds(ms)); },
            Unlocked(), "patience_ms"_a,
            "Wait until it wants another extent or a first error is to be told. False when it is closed.")
        .def("forget_checks", &CacheStore::forget_checks, Unlocked())
        .def("refuse", &CacheStore::refuse, "There are no more extents.")
        .def("ask_again", &CacheStore::ask_again,
             "There may be some by now: the next row that needs one asks.")
        .def("stats", &CacheStore::stats)
        .def("last_error", &CacheStore::last_error, "Empty without one.")
        .def(
            "close", [](CacheStore& store, int64_t ms) { return store.close(std::chrono::milliseconds(ms)); },
            Unlocked(), "patience_ms"_a,
            "End wait() and the queue for the spill. False when the disk took longer than the patience.");
}

void bind_checksums(nb::module_& m) {
    m.def(
        "checksum", [](Column<uint8_t> bytes) { return checksum({bytes.data(), bytes.shape(0)}); }, "bytes"_a,
        "What rows are known by when they are read.");
    m.def(
        "checksum_by", &checksum_by, "path"_a, "bytes"_a,
        "Likewise, in one of the ways: ``table``, ``sse4.2``, ``armv8``. None where this machine hasn't it.");
    m.def(
        "crc32c",
        [](Column<uint8_t> bytes, uint32_t before) { return crc32c({bytes.data(), bytes.shape(0)}, before); },
        Unlocked(), "bytes"_a, "before"_a = 0,
        "Return the CRC-32C of bytes that follow those whose CRC-32C is ``before``.");
    m.def("crc32c_of", &crc32c_of, "bytes"_a, "begins"_a, "sizes"_a,
          "Return the CRC-32C of n ranges of ``bytes``, (n,).");
    m.def("crc32c_of_file", &crc32c_of_file, "file"_a, "begins"_a, "sizes"_a,
          "Return the CRC-32C of n ranges of a file, (n,). Raises ``OSError``, and ``EOFError`` if the file "
          "ends "
          "too soon.");
}

}  // namespace

void bind_cache(nb::module_& m) {
    bind_values(m);
    bind_store(m);
    bind_checksums(m);
}

}  // namespace standpipe
