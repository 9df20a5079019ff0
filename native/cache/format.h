// The format of a set's table: a header, and for every record an entry that says where its row is stored.
// Numbers are in the machine's byte order, which the header names. Other programs can write to the file, so
// readers check every byte.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "io/stamp.h"

namespace standpipe {

inline constexpr uint64_t kCacheHeaderBytes = 4096, kCacheEntryBytes = 48;
inline constexpr uint32_t kCacheSpilled = 1;           // a flag of an entry
inline constexpr uint64_t kMostCachedBytes = 1 << 30;  // of a row
inline constexpr uint64_t kMostExtents = 1 << 24, kMostExtentBytes = uint64_t{1} << 40;

struct CachedRow {
    uint32_t extent = 0;
    uint64_t offset = 0;
    uint32_t length = 0, checksum = 0;
    bool spilled = false, damaged = false, truncated = false;
    Stamp stamp;
};

using CacheHeader = std::array<uint8_t, kCacheHeaderBytes>;
using CacheEntry = std::array<uint8_t, kCacheEntryBytes>;

// salt: the set's own number, so that no entry of another set is taken for one of this
CacheHeader cache_header(uint64_t records, uint64_t salt) noexcept;
// The error of a header: no text if it is of such a table. `is_foreign`: another version or byte order wrote
// it, so it may be intact.
struct WrongHeader {
    std::string text;
    bool is_foreign = false;
};
WrongHeader wrong_with_header(std::span<const uint8_t> header, uint64_t records, uint64_t salt);

CacheEntry cache_entry(const CachedRow& row, uint64_t record, uint64_t salt) noexcept;
// Returns nothing for an entry that is torn, damaged, of another record or set, or of an impossible row.
std::optional<CachedRow> row_of(const CacheEntry& entry, uint64_t record, uint64_t salt) noexcept;
// Returns whether no entry was ever written there.
bool is_blank(const CacheEntry& entry) noexcept;

}  // namespace standpipe
