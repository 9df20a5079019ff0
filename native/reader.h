// Reading encoded samples into buffers that are reused, within a byte budget.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace penstock {

class BufferPool;

// A piece of memory lent by a BufferPool; goes back when it is destroyed.
class Buffer {
  public:
    Buffer() = default;
    Buffer(Buffer&& other) noexcept { *this = std::move(other); }
    Buffer& operator=(Buffer&& other) noexcept;
    ~Buffer() { reset(); }

    uint8_t* data() const noexcept { return data_; }
    size_t capacity() const noexcept { return capacity_; }
    void reset() noexcept;

  private:
    friend class BufferPool;
    BufferPool* pool_ = nullptr;
    uint8_t* data_ = nullptr;
    size_t capacity_ = 0;
};

// Lends buffers of which at most `budget` bytes exist at once, in use or kept for reuse. A single buffer
// above the budget is lent when no other is in use.
class BufferPool {
  public:
    explicit BufferPool(size_t budget) : budget_(budget) {}
    ~BufferPool();
    BufferPool(const BufferPool&) = delete;
    BufferPool& operator=(const BufferPool&) = delete;

    // Waits until it fits, first come, first served. An empty buffer when the pool was closed meanwhile or
    // the machine has no memory.
    Buffer lend(size_t bytes);
    void close();

  private:
    friend class Buffer;
    struct Piece {
        uint8_t* data;
        size_t capacity;
    };
    struct Waiter {
        size_t capacity;
        std::condition_variable turn;
    };
    void take_back(Piece piece) noexcept;
    bool fits(size_t capacity) const noexcept;
    Piece take(size_t capacity) noexcept;
    void wake_first() noexcept;

    const size_t budget_;
    std::mutex mutex_;
    std::deque<Waiter*> waiting_;
    std::vector<Piece> kept_;  // free, most recently used last
    size_t total_ = 0, in_use_ = 0;
    bool closed_ = false;
};

struct ReadResult {
    Buffer buffer;
    size_t size = 0;
    std::string error;     // empty: `size` bytes were read
    double blocked_s = 0;  // how long storage made the thread wait; 0 when it never gave up its core
};

// Reads [offset, offset + length) of a regular file, or to its end for length < 0. `max_bytes`: cap on the
// encoded sample.
ReadResult read_sample(const std::string& path, int64_t offset, int64_t length, uint64_t max_bytes,
                       BufferPool& pool);

}  // namespace penstock
