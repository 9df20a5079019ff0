// The table of a cache set: which rows are stored, and which process is storing a row now.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "cache/format.h"
#include "system/descriptor.h"

namespace standpipe {

// Returns how often this process and its ancestors have forked, so a forked child has another number.
int forks() noexcept;

class CacheTable;

// The right to store a record's row, of one thread in all processes, for as long as it lives. The system ends
// those of processes that ended; one that is stopped keeps it, and nobody waits for it.
class Claim {
  public:
    Claim() = default;
    Claim(Claim&& other) noexcept;
    Claim& operator=(Claim&& other) noexcept;
    ~Claim();
    explicit operator bool() const noexcept { return table_ != nullptr; }

  private:
    friend class CacheTable;
    Claim(CacheTable* table, uint64_t record) noexcept : table_(table), record_(record) {}

    CacheTable* table_ = nullptr;
    uint64_t record_ = 0;
};

// Only the constructor throws, apart from std::bad_alloc.
class CacheTable {
  public:
    // Throws std::invalid_argument if the file isn't the table of such a set, std::system_error if it can't
    // be opened.
    CacheTable(int directory, uint64_t records, uint64_t salt, bool writes);
    CacheTable(const CacheTable&) = delete;
    CacheTable& operator=(const CacheTable&) = delete;

    // Returns a row that was stored. `wrong`: set if the entry is damaged or can't be read.
    std::optional<CachedRow> find(uint64_t record, bool& wrong) noexcept;
    // Sets found[i] to whether there is an entry for record first + i.
    void have(uint64_t first, std::span<bool> found) noexcept;
    // Makes this process not find the row until the record has another entry.
    void forget(uint64_t record, const CachedRow& row);

    // Returns no claim if another thread or process has it, or the system refuses it.
    Claim claim(uint64_t record);
    // Writes an entry, with the claim, once the row's bytes are written. Returns 0 or the system's error.
    int write(uint64_t record, const CachedRow& row) noexcept;

    uint64_t records() const noexcept { return records_; }
    // A claim belongs to the open file, which a forked process shares. So a forked process can't store rows.
    bool is_forked() const noexcept { return forks_ != forks(); }
    bool writes() const noexcept { return writes_ && !is_forked(); }

  private:
    friend class Claim;
    void release(uint64_t record) noexcept;
    int lock(uint64_t record, short kind) const noexcept;
    bool is_forgotten(uint64_t record, uint32_t check) noexcept;

    const uint64_t records_, salt_;
    const bool writes_;
    const int forks_ = forks();
    Descriptor file_;
    std::mutex mutex_;
    std::unordered_set<uint64_t> claimed_;
    std::unordered_map<uint64_t, uint32_t> forgotten_;  // the entry's check, by record
    std::atomic<bool> forgets_{false};                  // whether there are such
};

}  // namespace standpipe
