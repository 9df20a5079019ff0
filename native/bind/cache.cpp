// Binds the store of a cache: its room, its state, and single rows of it.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

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

// Runs `call` and turns an error of the system into an OSError.
template <typename Call>
auto with_os_errors(Call&& call) {
    try {
        return call();
    } catch (const std::system_error& error) {
        raise_os_error(error.code().value());
    }
}

uint64_t record_of(const CacheStore& store, uint64_t record) {
    if (record >= store.records()) throw nb::index_error("the set has no such record");
    return record;
}

// A row's bytes, if they were found and are intact; and where the row was found.
using TakenRow = std::pair<std::optional<Bytes>, std::optional<CachedRow>>;

TakenRow take(CacheStore& store, uint64_t record, const std::optional<nb::bytes>& path) {
    record_of(store, record);
    const std::string file = path ? std::string(path->c_str(), path->size()) : std::string();
    std::optional<Numbers<uint8_t>> bytes;
    std::optional<CachedRow> row;
    bool is_right = false;
    {
        Released unlocked;
        row = store.find(record);
        if (!row) {
            store.count_miss();
        } else if (!path || is_as_stored(store, record, *row, file)) {
            bytes.emplace(row->length);
            is_right = store.read(record, *row, bytes->values().data());
        }
    }
    if (!is_right) return {std::nullopt, row};
    return {std::move(*bytes).array(), row};
}

std::optional<Bytes> get(CacheStore& store, uint64_t record) {
    return take(store, record, std::nullopt).first;
}

bool put(CacheStore& store, uint64_t record, Column<uint8_t> bytes, const Stamp& stamp, bool damaged,
         bool truncated, const std::optional<CachedRow>& stale) {
    record_of(store, record);
    const auto replaced = stale ? std::optional(stale->stamp) : std::nullopt;
    Released unlocked;
    const bool stored =
        store.put(record, {bytes.data(), bytes.shape(0)}, stamp, damaged, truncated, replaced);
    if (stored) store.set_checked(record);
    return stored;
}

Numbers<bool>::Array have(CacheStore& store, uint64_t first, uint64_t stop) {
    if (first > stop || stop > store.records()) throw nb::index_error("the set has no such records");
    return filled<bool>(stop - first, [&](auto found) { store.have(first, found); });
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
    return filled<uint32_t>(sizes.shape(0), [&](auto out) {
        for (size_t i = 0; i < out.size(); ++i)
            out[i] = crc32c({bytes.data() + begins.data()[i], static_cast<size_t>(sizes.data()[i])});
    });
}

Numbers<uint32_t>::Array crc32c_of_file(int file, Column<int64_t> begins, Column<int64_t> sizes) {
    check_ranges(begins, sizes, INT64_MAX);
    SumsResult result;
    const auto sums = filled<uint32_t>(sizes.shape(0), [&](auto out) {
        result = read_sums(file, {begins.data(), begins.shape(0)}, {sizes.data(), sizes.shape(0)}, out);
    });
    switch (result.fault) {
        case SumsFault::none: break;
        case SumsFault::cant_read: raise_os_error(result.error);
        case SumsFault::too_short:
            PyErr_SetString(PyExc_EOFError, "the file ends too soon");
            throw nb::python_error();
    }
    return sums;
}

std::optional<uint32_t> checksum_by(const std::string& path, Column<uint8_t> bytes) {
    const ChecksumPath* way = checksum_path(path.c_str());
    if (!way) return std::nullopt;
    return way->take({bytes.data(), bytes.shape(0)});
}

void bind_values(nb::module_& m) {
    nb::class_<Stamp>(m, "Stamp", "The version of a file that was read; all zeros without a file.")
        .def(
            "__init__",
            [](Stamp* self, int64_t file_bytes, int64_t mtime_ns, int64_t ctime_ns, bool racy) {
                new (self) Stamp{file_bytes, mtime_ns, ctime_ns, racy};
            },
            "file_bytes"_a = 0, "mtime_ns"_a = 0, "ctime_ns"_a = 0, "racy"_a = false)
        .def_ro("file_bytes", &Stamp::file_bytes)
        .def_ro("mtime_ns", &Stamp::mtime_ns, "Time of modification, in ns; its owner can set it.")
        .def_ro("ctime_ns", &Stamp::ctime_ns, "Time of the last inode change, in ns, set by the system only.")
        .def_ro("racy", &Stamp::racy, "True if a later change might have the same times.");

    nb::class_<CachedRow>(m, "CachedRow", "A row in a cache set: its place, and its properties.")
        .def_ro("extent", &CachedRow::extent, "Number of the extent.")
        .def_ro("offset", &CachedRow::offset, "First byte in the extent.")
        .def_ro("length", &CachedRow::length, "Bytes of the row.")
        .def_ro("checksum", &CachedRow::checksum, "See ``checksum``.")
        .def_ro("spilled", &CachedRow::spilled, "True for an extent of the spill.")
        .def_ro("damaged", &CachedRow::damaged, "True if its file was decoded over damage.")
        .def_ro("truncated", &CachedRow::truncated, "True if its file ends too soon.")
        .def_ro("stamp", &CachedRow::stamp, "Stamp of the file from which the row was made.");

    nb::class_<CacheStats>(m, "CacheStats",
                           "Counts what this process did with a cache set, in rows unless a name says bytes.")
        .def_ro("hits", &CacheStats::hits, "Rows that were found and read.")
        .def_ro("misses", &CacheStats::misses, "Rows that weren't found, or were of no use.")
        .def_ro("stored", &CacheStats::stored, "Rows that were stored.")
        .def_ro("skipped", &CacheStats::skipped,
                "Rows not stored: no room, a full queue, or another worker was storing it.")
        .def_ro("stale", &CacheStats::stale, "Rows whose file had changed.")
        .def_ro("errors", &CacheStats::errors, "Entries or rows that were damaged or couldn't be accessed.")
        .def_ro("hit_bytes", &CacheStats::hit_bytes, "Bytes of the hits.")
        .def_ro("stored_bytes", &CacheStats::stored_bytes, "Bytes of the stored rows.")
        .def_ro("spilled_hits", &CacheStats::spilled_hits, "Hits on the spill.")
        .def_ro("spilled_stored", &CacheStats::spilled_stored, "Rows stored on the spill.");

    nb::class_<Wants>(m, "CacheWants", "The room that a store asks for: extents, which are parts of files.")
        .def_ro("extent", &Wants::extent, "True if the store wants an extent.")
        .def_ro("row_bytes", &Wants::row_bytes, "Bytes of the largest row so far; an extent needs as many.")
        .def_ro("skipped", &Wants::skipped, "True if a row wasn't stored because there was no room.")
        .def_ro("memory", &Wants::memory, "True if the store takes extents in memory.")
        .def_ro("spill", &Wants::spill, "True if the store takes extents of the spill.");
}

void bind_store(nb::module_& m) {
    m.attr("CACHE_HEADER_BYTES") = kCacheHeaderBytes;
    m.attr("CACHE_ENTRY_BYTES") = kCacheEntryBytes;
    m.attr("CACHE_SPILLED") = kCacheSpilled;
    m.attr("MOST_EXTENTS") = kMostExtents;
    m.attr("MOST_CACHED_BYTES") = kMostCachedBytes;
    nb::class_<CacheStore>(m, "CacheStore", "Rows of a cache set, shared by local processes. Thread-safe.")
        .def(nb::new_([](int directory, uint64_t records, uint64_t salt, bool writes, size_t queue_bytes) {
                 return with_os_errors([&] {
                     return std::make_shared<CacheStore>(directory, records, salt, writes, queue_bytes);
                 });
             }),
             "directory"_a, "records"_a, "salt"_a, "writes"_a, "queue_bytes"_a,
             "``directory``: descriptor of the set's folder. ``salt``: the set's own number.\n"
             "``queue_bytes``: of rows that wait for the spill. Raises ``ValueError`` if the table isn't\n"
             "this set's, ``RuntimeError`` if another version wrote it, and ``OSError``.")
        .def_static("table_header", &table_header, "records"_a, "salt"_a, "Return a set's table header.")
        .def(
            "set_spill",
            [](CacheStore& store, int directory, int64_t patience_ms) {
                with_os_errors([&] { store.set_spill(directory, std::chrono::milliseconds(patience_ms)); });
            },
            "directory"_a, "patience_ms"_a = CacheDisk::kPatience.count(),
            "Store rows on a disk when memory is full. ``directory``: descriptor of its folder.\n"
            "The store stops using the disk when reading a row takes longer than ``patience_ms``.")
        .def(
            "find", [](CacheStore& store, uint64_t record) { return store.find(record_of(store, record)); },
            Unlocked(), "record"_a, "Return where the record's row is stored, or None.")
        .def("get", &get, "record"_a, "Return the record's row, (n,) uint8, or None. Counts a hit or a miss.")
        .def("take", &take, "record"_a, "path"_a.none(),
             "Return the record's row, or None, and where it was found, or None.\n"
             "A row that was found but isn't returned is unreadable, or its file at ``path`` has changed.\n"
             "Files are examined once until ``forget_checks``; with ``path`` None never.")
        .def("put", &put, "record"_a, "row"_a, "stamp"_a = Stamp(), "damaged"_a = false,
             "truncated"_a = false, "stale"_a = nb::none(),
             "Store a row, or queue it for the spill, if the set has none or has the row ``stale``.\n"
             "Returns whether this was done. The row's file then counts as examined.")
        .def("have", &have, "first"_a, "stop"_a,
             "Return for each record in [first, stop) whether the set has an entry, (stop - first,) bool.")
        .def(
            "add_extent",
            [](CacheStore& store, uint32_t number, int file, uint64_t begin, uint64_t end, bool spilled) {
                return with_os_errors([&] { return store.add_extent(number, file, begin, end, spilled); });
            },
            "number"_a, "file"_a, "begin"_a, "end"_a, "spilled"_a,
            "Let the store write to bytes [begin, end) of a file, through a copy of its descriptor.\n"
            "Returns False if writing to memory, or to the spill, has failed before.")
        .def("wants", &CacheStore::wants)
        .def(
            "wait", [](CacheStore& store, int64_t ms) { return store.wait(std::chrono::milliseconds(ms)); },
            Unlocked(), "patience_ms"_a,
            "Wait until the store wants an extent or has a first error. Returns False when it is closed.")
        .def("forget_checks", &CacheStore::forget_checks, Unlocked())
        .def("refuse", &CacheStore::refuse, "Skip rows without room from now on, until ``ask_again``.")
        .def("ask_again", &CacheStore::ask_again, "Let the next row without room ask for an extent again.")
        .def("stats", &CacheStore::stats)
        .def("last_error", &CacheStore::last_error, "Return the last error; empty without one.")
        .def(
            "close", [](CacheStore& store, int64_t ms) { return store.close(std::chrono::milliseconds(ms)); },
            Unlocked(), "patience_ms"_a,
            "End ``wait``, and the queue for the spill. Returns False if the disk took longer than that.");
}

void bind_checksums(nb::module_& m) {
    m.def(
        "checksum", [](Column<uint8_t> bytes) { return checksum({bytes.data(), bytes.shape(0)}); }, "bytes"_a,
        "Return the checksum of a row, with which it is stored and compared when it is read.");
    m.def(
        "checksum_by", &checksum_by, "path"_a, "bytes"_a,
        "Return the checksum as ``table``, ``sse4.2`` or ``armv8`` computes it; None if this machine can't.");
    m.def(
        "crc32c",
        [](Column<uint8_t> bytes, uint32_t before) { return crc32c({bytes.data(), bytes.shape(0)}, before); },
        Unlocked(), "bytes"_a, "before"_a = 0, "Return the CRC-32C of ``bytes``, continued from ``before``.");
    m.def("crc32c_of", &crc32c_of, "bytes"_a, "begins"_a, "sizes"_a,
          "Return the CRC-32C of n ranges of ``bytes``, (n,) uint32.");
    m.def("crc32c_of_file", &crc32c_of_file, "file"_a, "begins"_a, "sizes"_a,
          "Return the CRC-32C of n ranges of a file, (n,) uint32. Raises ``OSError``, and ``EOFError``\n"
          "if the file ends too soon.");
}

}  // namespace

void bind_cache(nb::module_& m) {
    bind_values(m);
    bind_store(m);
    bind_checksums(m);
}

}  // namespace standpipe
