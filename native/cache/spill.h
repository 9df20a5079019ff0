// Rows on their way to the spill: a disk may take its time, and nobody waits for it but a thread of its own.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "cache/writer.h"

namespace standpipe {

class CacheSpill : public std::enable_shared_from_this<CacheSpill> {
  public:
    CacheSpill(std::shared_ptr<CacheWriter> writer, size_t queue_bytes)
        : writer_(std::move(writer)), queue_bytes_(queue_bytes) {}

    // Takes a copy of the bytes. False when there is no place for it in the queue.
    bool put(uint64_t record, Claim claim, const CachedRow& row, const Place& place,
             std::span<const uint8_t> bytes);
    // Takes nothing more. False when not all was written within the patience: the rest is dropped, and the
    // thread ends when the disk lets it.
    bool close(std::chrono::milliseconds patience);

  private:
    struct Row {
        uint64_t record;
        Claim claim;
        CachedRow row;
        Place place;
        size_t begin;         // in the queue's bytes
        bool copied = false;  // they are there
    };

    std::optional<size_t> begin_for(size_t bytes) const;
    bool start();
    void work();

    const std::shared_ptr<CacheWriter> writer_;
    const size_t queue_bytes_;
    std::mutex mutex_;
    std::condition_variable changed_, ended_;
    std::unique_ptr<uint8_t[]> bytes_;  // a ring of queue_bytes_
    std::list<Row> rows_;               // in the order of their bytes; the first is being written
    size_t end_ = 0;                    // of the last one's bytes
    bool alive_ = false, closed_ = false, abandoned_ = false;
};

}  // namespace standpipe
