// Reads rows of packed index files and of other files by position, never mapping them: mapped pages count as
// the process's memory, and reading one of a file that was cut ends the process.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace standpipe {

enum class PackedFault : int {
    none = 0,
    cant_read,  // the system says no; `errno_` of the result
    too_short,  // the file ends before what should be there
    damaged,    // bytes aren't what was written
    bad_place,  // a path's place lies outside the text
    bad_path,   // what stands there isn't one path between its separators
    leads_out,  // a path leads out of the folder that it has to stay in
};

struct PackedResult {
    PackedFault fault = PackedFault::none;
    int error = 0;       // the system's number, for cant_read
    int64_t index = -1;  // the record, of a fault of a place or path; the file's byte, of damage
};

// `size` bytes of data from byte `begin` of a file on: sealed with `key`, or without one as they are.
struct PackedSection {
    int file;
    uint64_t begin;
    uint64_t size;
    std::optional<uint64_t> key;
};

// Rows of `row_bytes` each, whose beginnings are `stride` bytes apart.
struct PackedRows {
    PackedSection section;
    uint64_t row_bytes, stride;
};

// Paths in a section, of which places count its bytes of data. Before each stands the beginning or a byte
// of `before`, after it the end or a byte of `after`; inside are neither of `never`. `stays`: none may lead
// out of the folder that it starts from.
struct PackedText {
    PackedSection section;
    std::string_view before;
    std::string_view after;
    std::string_view never;
    bool stays;
};

// Copies the data [begin, begin + out.size()) of a section.
PackedResult read_part(const PackedSection& section, uint64_t begin, std::span<uint8_t> out);

// Copies the rows `indices` in that order to `out`, packed. Reads are sorted, and neighbours are read
// together. Where a section without seals isn't in the system's memory,
// the system learns of all places before it reads.
PackedResult read_rows(const PackedRows& rows, std::span<const int64_t> indices, uint8_t* out);

// The paths of the records `indices`, one after another in `blob`, path i ending at `ends[i]`; `base` stands
// before those that don't start with a slash. `places`: (n,) uint64, as pack_place makes them.
PackedResult read_paths(const PackedRows& places, const PackedText& text, std::string_view base,
                        std::span<const int64_t> indices, std::vector<uint8_t>& blob,
                        std::span<int64_t> ends);

}  // namespace standpipe
