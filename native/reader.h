// Reading encoded samples into buffers that are reused, within a byte budget; again where an error may pass.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace penstock {

class BufferPool;

// A piece of memory lent by a BufferPool, which lives as long; goes back when it is destroyed.
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
    // `admits` is asked for every buffer, by its bytes, before any memory is taken; it may wait, or say no.
    explicit BufferPool(size_t budget, std::function<bool(size_t)> admits = {})
        : budget_(budget), admits_(std::move(admits)) {}
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
    const std::function<bool(size_t)> admits_;
    std::mutex mutex_;
    std::deque<Waiter*> waiting_;
    std::vector<Piece> kept_;  // free, most recently used last
    size_t total_ = 0, in_use_ = 0;
    bool closed_ = false;
};

// The bytes [offset, offset + length) of a regular file, or those up to its end for length < 0.
struct FileRange {
    std::string path;
    int64_t offset = 0;
    int64_t length = -1;
    uint64_t max_bytes = UINT64_MAX;  // cap on an encoded sample
};

struct ReadResult {
    Buffer buffer;
    size_t size = 0;
    std::string error;  // empty: `size` bytes were read
    double took_s = 0;  // in the system's hands, without waiting for a buffer
    double blocked_s =
        0;  // of these, how long storage made the thread wait; 0 when it never gave up its core
};

struct ReadPolicy {
    int retries = 3;          // tries after the first, when an error may pass
    double backoff_s = 0.05;  // before the second try; each later pause is twice as long, give or take a half
};

struct ReadStats {
    uint64_t retries = 0;
    double slowest_s = 0;  // of all tries
};

// Reads samples as a policy says. Any number of threads at once.
class Reader {
  public:
    explicit Reader(const ReadPolicy& policy) : policy_(policy) {}

    ReadResult read(const FileRange& range, BufferPool& buffers);
    // Ends pauses between tries; reads fail from now on.
    void close();

    ReadStats stats() const { return {retries_, slowest_s_}; }

  private:
    bool pause(double seconds);
    void note(const ReadResult& tried) noexcept;

    const ReadPolicy policy_;
    std::atomic<uint64_t> retries_{0};
    std::atomic<double> slowest_s_{0};
    std::mutex mutex_;
    std::condition_variable ended_;
    bool closed_ = false;
};

}  // namespace penstock
