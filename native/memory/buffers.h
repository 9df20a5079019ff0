// Buffers for encoded samples, which are reused, within a byte budget.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace standpipe {

class BufferPool;

// A piece of memory that a BufferPool lends. It keeps the pool alive, and goes back when it is destroyed.
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
    std::shared_ptr<BufferPool> pool_;
    uint8_t* data_ = nullptr;
    size_t capacity_ = 0;
};

// Lends buffers of which at most `budget` bytes exist at once, in use or kept for reuse. A single buffer
// above the budget is lent when no other is in use.
class BufferPool : public std::enable_shared_from_this<BufferPool> {
  public:
    // `admits` is called with the bytes of every buffer before any memory is taken. It may wait, or refuse.
    explicit BufferPool(size_t budget, std::function<bool(size_t)> admits = {})
        : budget_(budget), admits_(std::move(admits)) {}
    ~BufferPool();
    BufferPool(const BufferPool&) = delete;
    BufferPool& operator=(const BufferPool&) = delete;

    // Waits until the buffer fits, first come, first served. Returns an empty buffer if the pool was closed
    // during the wait, or the machine has no memory.
    Buffer lend(size_t bytes);
    // Lends a buffer without waiting. Returns an empty one where `lend` would wait, or call `admits`.
    Buffer lend_now(size_t bytes);

    void close();

    // total: bytes in use or kept now. peak: the most there ever were.
    size_t total() const;
    size_t peak() const;

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
    Buffer taken(size_t capacity) noexcept;
    Piece take(size_t capacity) noexcept;
    void take_back(Piece piece) noexcept;
    bool fits(size_t capacity) const noexcept;
    void wake_first() noexcept;

    const size_t budget_;
    const std::function<bool(size_t)> admits_;
    mutable std::mutex mutex_;
    std::deque<Waiter*> waiting_;
    std::vector<Piece> kept_;  // free, most recently used last
    size_t total_ = 0, peak_ = 0, in_use_ = 0;
    bool closed_ = false;
};

}  // namespace standpipe
