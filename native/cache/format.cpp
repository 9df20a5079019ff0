#include "cache/format.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "system/checksum.h"
#include "system/keys.h"

namespace standpipe {
namespace {

constexpr uint32_t kFormat = 2;  // 1: without ctime_ns
constexpr uint32_t kByteOrder = 0x01020304;
constexpr uint32_t kSpilled = kCacheSpilled, kDamaged = 2, kTruncated = 4, kRacy = 8, kAllFlags = 15;
constexpr int kOffsetBits = 40;

// The beginning of the file; zeros follow.
struct Header {
    char magic[8];
    uint32_t byte_order, format;
    uint64_t records, salt;
    uint32_t header_bytes, entry_bytes;
    uint32_t reserved, check;  // of everything before it
};

struct Entry {
    uint32_t check;  // of everything behind it, the record and the set
    uint32_t flags;
    uint64_t place;  // extent << 40 | offset
    uint32_t length, checksum;
    int64_t ctime_ns, file_bytes, mtime_ns;
};
static_assert(sizeof(Entry) == kCacheEntryBytes);

constexpr char kMagic[8] = {'s', 'p', '-', 'c', 'a', 'c', 'h', 'e'};

uint32_t check_of(const Header& header) noexcept {
    return checksum({reinterpret_cast<const uint8_t*>(&header), offsetof(Header, check)});
}

uint32_t check_of(Entry entry, uint64_t record, uint64_t salt) noexcept {
    entry.check = 0;
    const uint64_t key = mix(salt, record);
    uint8_t bytes[sizeof entry + sizeof key];
    std::memcpy(bytes, &entry, sizeof entry);
    std::memcpy(bytes + sizeof entry, &key, sizeof key);
    return checksum(bytes);
}

bool is_zero(std::span<const uint8_t> bytes) noexcept {
    return std::ranges::all_of(bytes, [](uint8_t byte) { return byte == 0; });
}

}  // namespace

CacheHeader cache_header(uint64_t records, uint64_t salt) noexcept {
    Header header{{}, kByteOrder, kFormat, records, salt, kCacheHeaderBytes, kCacheEntryBytes, 0, 0};
    std::memcpy(header.magic, kMagic, sizeof kMagic);
    header.check = check_of(header);
    CacheHeader bytes{};
    std::memcpy(bytes.data(), &header, sizeof header);
    return bytes;
}

WrongHeader wrong_with_header(std::span<const uint8_t> bytes, uint64_t records, uint64_t salt) {
    if (bytes.size() < kCacheHeaderBytes) return {"its header is cut off"};
    Header header;
    std::memcpy(&header, bytes.data(), sizeof header);
    if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return {"it is no table of a cache"};
    if (header.byte_order == __builtin_bswap32(kByteOrder))
        return {"it was written by a machine of the other byte order", true};
    // A header of every format has its check at this place.
    if (header.byte_order != kByteOrder || header.check != check_of(header)) return {"its header is damaged"};
    if (header.format != kFormat)
        return {"its format is " + std::to_string(header.format) + ", and this standpipe's " +
                    std::to_string(kFormat),
                true};
    if (header.records != records)
        return {"it is for " + std::to_string(header.records) + " records, not " + std::to_string(records)};
    if (!std::ranges::equal(bytes.first(kCacheHeaderBytes), cache_header(records, salt)))
        return {"it is of another set"};
    return {};
}

CacheEntry cache_entry(const CachedRow& row, uint64_t record, uint64_t salt) noexcept {
    const uint32_t flags = (row.spilled ? kSpilled : 0) | (row.damaged ? kDamaged : 0) |
                           (row.truncated ? kTruncated : 0) | (row.stamp.racy ? kRacy : 0);
    Entry entry{0,
                flags,
                uint64_t{row.extent} << kOffsetBits | row.offset,
                row.length,
                row.checksum,
                row.stamp.ctime_ns,
                row.stamp.file_bytes,
                row.stamp.mtime_ns};
    entry.check = check_of(entry, record, salt);
    CacheEntry bytes;
    std::memcpy(bytes.data(), &entry, sizeof entry);
    return bytes;
}

std::optional<CachedRow> row_of(const CacheEntry& bytes, uint64_t record, uint64_t salt) noexcept {
    Entry entry;
    std::memcpy(&entry, bytes.data(), sizeof entry);
    if (entry.check != check_of(entry, record, salt)) return std::nullopt;
    if ((entry.flags & ~kAllFlags) != 0) return std::nullopt;
    if (entry.length == 0 || entry.length > kMostCachedBytes) return std::nullopt;
    const uint64_t offset = entry.place & (kMostExtentBytes - 1);
    if (offset + entry.length > kMostExtentBytes) return std::nullopt;
    return CachedRow{static_cast<uint32_t>(entry.place >> kOffsetBits),
                     offset,
                     entry.length,
                     entry.checksum,
                     (entry.flags & kSpilled) != 0,
                     (entry.flags & kDamaged) != 0,
                     (entry.flags & kTruncated) != 0,
                     {entry.file_bytes, entry.mtime_ns, entry.ctime_ns, (entry.flags & kRacy) != 0}};
}

bool is_blank(const CacheEntry& entry) noexcept { return is_zero(entry); }

}  // namespace standpipe
