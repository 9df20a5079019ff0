// Reads cached rows from a disk in separate threads. If the disk hangs, the caller continues without the row.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "cache/extents.h"
#include "cache/format.h"
#include "system/helpers.h"

namespace standpipe {

// The result of reading a row: the number of its bytes that were read, or the system's error.
struct Got {
    size_t bytes = 0;
    int error = 0;
};

// Reads a row in the calling thread. An extent that can't be read counts as lost.
Got read_row(ReadExtents& extents, uint64_t record, const CachedRow& row, std::span<uint8_t> out);

class CacheDisk {
  public:
    // A disk that has to spin up needs some seconds.
    static constexpr std::chrono::milliseconds kPatience{4000};

    explicit CacheDisk(std::shared_ptr<ReadExtents> extents) : extents_(std::move(extents)) {}

    // Sets how long a row is waited for. After that, the row and all others on that disk are given up.
    void set_patience(std::chrono::milliseconds patience) noexcept { patience_ = patience; }
    // Reads a row in another thread, or in the calling one if no other is available. Returns ETIMEDOUT when
    // the patience is over. Throws std::future_error if this is closed at the same time.
    Got read(uint64_t record, const CachedRow& row, std::span<uint8_t> out);
    // Ends reading. A thread that is stuck in the system ends when the disk lets it.
    void close(std::chrono::milliseconds patience);

  private:
    static constexpr int kMostReaders = 1024;  // one per thread that waits

    const std::shared_ptr<ReadExtents> extents_;
    const std::shared_ptr<Helpers> readers_ = std::make_shared<Helpers>(kMostReaders);
    std::atomic<std::chrono::milliseconds> patience_{kPatience};
};

}  // namespace standpipe
