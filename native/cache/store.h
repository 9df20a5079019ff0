// A set of rows that processes of one machine share. Rows are found by their record's number, read into a
// slot, and stored by the process that made them. docs/decisions/0031-the-cache-is-plain-files.md says why.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "cache/disk.h"
#include "cache/extents.h"
#include "cache/spill.h"
#include "cache/writer.h"

namespace standpipe {

// Thread-safe. Nothing of a cache that is damaged, gone or full makes a call fail or wait: it's a miss, or a
// row that isn't stored. A disk that hangs makes it wait once. A forked process's copy stores nothing.
class CacheStore : public std::enable_shared_from_this<CacheStore> {
  public:
    using Wants = standpipe::Wants;

    // directory  of the set, with its table
    // salt       the set's own number
    // writes     whether rows may be stored
    // queue_bytes  of rows on their way to the spill
    // Throws std::invalid_argument for a table that isn't this set's, std::system_error when it can't be had.
    CacheStore(int directory, uint64_t records, uint64_t salt, bool writes, size_t queue_bytes);
    CacheStore(const CacheStore&) = delete;
    CacheStore& operator=(const CacheStore&) = delete;
    ~CacheStore();

    // The folder of spilled extents.
    // patience  until the disk is given up that doesn't give a row: it's read no more, nor written
    void set_spill(int directory, std::chrono::milliseconds patience = CacheDisk::kPatience);

    uint64_t records() const noexcept;

    // Looks a row up. Counts only errors.
    std::optional<CachedRow> find(uint64_t record) noexcept;
    // Sets found[i] to whether there is an entry for record first + i, even for a row that is damaged.
    void have(uint64_t first, std::span<bool> found) noexcept;
    // out  row.length bytes
    // Returns false if the bytes can't be read or aren't those that were stored. This process then doesn't
    // find the row again. Counts a hit, or an error and a miss.
    bool read(uint64_t record, const CachedRow& row, uint8_t* out) noexcept;
    void count_miss() noexcept;
    void count_stale() noexcept;

    // Stores a row where none is. In memory it's written at once, for the spill copied to the queue. Whether
    // that was done.
    // stale  of the row that was found and is to be replaced. Another one isn't: who stored it since has seen
    //        its file later.
    bool put(uint64_t record, std::span<const uint8_t> bytes, const Stamp& stamp, bool damaged,
             bool truncated, const std::optional<Stamp>& stale = {}) noexcept;

    // Returns whether the row was compared with its file since the last forget_checks().
    bool checked(uint64_t record) const noexcept;
    void set_checked(uint64_t record) noexcept;
    void forget_checks() noexcept;

    // number  below kMostExtents
    // file    to write to; the caller has locked it. Bytes [begin, end) are free.
    // Returns false if writing to that tier has failed before.
    bool add_extent(uint32_t number, int file, uint64_t begin, uint64_t end, bool spilled);
    // Returns what the store asks for. It asks before the present extent is full.
    Wants wants() const;
    // Waits until the store wants an extent, a first error is to be reported, or the patience is over.
    // Returns false when it is closed. An extent that is still wanted ends the wait only once.
    bool wait(std::chrono::milliseconds patience);
    // Says that there are no more extents: rows without room are skipped until ask_again().
    void refuse();
    void ask_again();

    CacheStats stats() const;
    std::string last_error() const;
    // Ends wait(), and the queue. False when the disk took longer than the patience; what it hadn't taken
    // is dropped.
    bool close(std::chrono::milliseconds patience);

  private:
    bool skip() noexcept;
    Got read_bytes(uint64_t record, const CachedRow& row, std::span<uint8_t> out);
    bool read_right(uint64_t record, const CachedRow& row, std::span<uint8_t> out);

    const std::shared_ptr<CacheWriter> writer_;
    const std::shared_ptr<CacheSpill> spill_;
    const std::shared_ptr<ReadExtents> extents_;
    CacheDisk disk_;
    std::unique_ptr<std::atomic<uint64_t>[]> checked_;  // a bit for every record
};

}  // namespace standpipe
