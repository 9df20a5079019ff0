// Writes a row into a cache set: first its bytes, then the table entry that makes the row findable.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>

#include "cache/room.h"
#include "cache/table.h"

namespace standpipe {

struct CacheStats {
    uint64_t hits = 0, misses = 0, stored = 0;
    uint64_t skipped = 0;  // no room, the queue was full, or another one was storing it
    uint64_t stale = 0;
    uint64_t errors = 0;  // entries or bytes that were wrong, or couldn't be read or written
    uint64_t hit_bytes = 0, stored_bytes = 0, spilled_hits = 0, spilled_stored = 0;
};

struct CacheCounts {
    std::atomic<uint64_t> hits{0}, misses{0}, stored{0}, skipped{0}, stale{0}, errors{0}, hit_bytes{0},
        stored_bytes{0}, spilled_hits{0}, spilled_stored{0};
    CacheStats now() const noexcept;
};

// The state that all threads of a store share. The thread that writes to the spill may outlive the store.
class CacheWriter {
  public:
    CacheWriter(int directory, uint64_t records, uint64_t salt, bool writes)
        : table(directory, records, salt, writes) {}

    CacheTable table;
    CacheRoom room;
    CacheCounts counts;

    // Writes a row, with the record's claim. Returns false for an error, which is counted and noted.
    bool write(uint64_t record, const CachedRow& row, const Place& place,
               std::span<const uint8_t> bytes) noexcept;
    // error  the system's, if it was one
    void count_error(const char* what, int error = 0) noexcept;
    std::string last_error() const;

  private:
    int write_bytes(uint64_t record, const Place& place, std::span<const uint8_t> bytes) const;
    int write_entry(uint64_t record, const CachedRow& row);

    mutable std::mutex mutex_;
    std::string last_error_;
};

}  // namespace standpipe
