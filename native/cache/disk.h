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

// What became of reading a row: how many of its bytes there were, or the system's error.
struct Got {
    size_t bytes = 0;
    int error = 0;
};

// In the calling thread. An extent that can't be read is lost.
Got read_row(ReadExtents& extents, uint64_t record, const CachedRow& row, std::span<uint8_t> out);

class CacheDisk {
  public:
    // One that slept needs some seconds.
    static constexpr std::chrono::milliseconds kPatience{4000};

    explicit CacheDisk(std::shared_ptr<ReadExtents> extents) : extents_(std::move(extents)) {}

    // Until a row is given up, and with it all that lies on that disk.
    void set_patience(std::chrono::milliseconds patience) noexcept { patience_ = patience; }
    // ETIMEDOUT when the patience is over. Where there is no thread, or no longer, the calling one reads, and
    // waits. Throws std::future_error when it is closed meanwhile.
    Got read(uint64_t record, const CachedRow& row, std::span<uint8_t> out);
    // Nobody reads any more. A thread that is stuck ends when the disk lets it.
    void close(std::chrono::milliseconds patience);

  private:
    static constexpr int kMostReaders = 1024;  // one for whoever asks

    const std::shared_ptr<ReadExtents> extents_;
    const std::shared_ptr<Helpers> readers_ = std::make_shared<Helpers>(kMostReaders);
    std::atomic<std::chrono::milliseconds> patience_{kPatience};
};

}  // namespace standpipe
