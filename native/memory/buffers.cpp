#include "memory/buffers.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <utility>

#include "memory/heartbeat.h"

namespace standpipe {
namespace {

constexpr size_t kGrain =
    64 << 10;  // capacities are multiples of this, so that buffers fit one another's samples

size_t rounded_up(size_t bytes) noexcept { return (bytes + kGrain - 1) / kGrain * kGrain; }

}  // namespace

Buffer& Buffer::operator=(Buffer&& other) noexcept {
    if (this == &other) return *this;
    reset();
    pool_ = std::move(other.pool_);
    data_ = std::exchange(other.data_, nullptr);
    capacity_ = std::exchange(other.capacity_, 0);
    return *this;
}

void Buffer::reset() noexcept {
    if (pool_) pool_->take_back({data_, capacity_});
    pool_.reset();
    data_ = nullptr;
    capacity_ = 0;
}

BufferPool::~BufferPool() {
    for (const Piece& piece : kept_) munmap(piece.data, piece.capacity);
}

// Returns whether `take` would succeed now; the caller holds the lock.
bool BufferPool::fits(size_t capacity) const noexcept {
    return in_use_ == 0 || in_use_ + capacity <= budget_ ||
           std::any_of(kept_.begin(), kept_.end(), [&](const Piece& p) { return p.capacity >= capacity; });
}

// A kept piece, or a new one in the place of kept ones that are too small; the lock is held.
BufferPool::Piece BufferPool::take(size_t capacity) noexcept {
    const auto fit =
        std::find_if(kept_.rbegin(), kept_.rend(), [&](const Piece& p) { return p.capacity >= capacity; });
    if (fit != kept_.rend()) {
        const Piece piece = *fit;
        kept_.erase(std::next(fit).base());
        return piece;
    }
    while (total_ + capacity > budget_ && !kept_.empty()) {
        munmap(kept_.front().data, kept_.front().capacity);
        total_ -= kept_.front().capacity;
        kept_.erase(kept_.begin());
    }
    void* fresh = mmap(nullptr, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED) return {nullptr, 0};
    total_ += capacity;
    peak_ = std::max(peak_, total_);
    return {static_cast<uint8_t*>(fresh), capacity};
}

// The lock is held.
Buffer BufferPool::taken(size_t capacity) noexcept {
    Buffer buffer;
    const Piece piece = take(capacity);
    if (!piece.data) return buffer;
    buffer.pool_ = shared_from_this();
    buffer.data_ = piece.data;
    buffer.capacity_ = piece.capacity;
    in_use_ += piece.capacity;
    return buffer;
}

// Waking all who wait for each buffer that comes back cost a third of a row's time. The lock is held.
void BufferPool::wake_first() noexcept {
    if (!waiting_.empty() && (closed_ || fits(waiting_.front()->capacity)))
        waiting_.front()->turn.notify_one();
}

Buffer BufferPool::lend(size_t bytes) {
    Waiter me{rounded_up(bytes), {}};
    Buffer buffer;
    if (admits_ && !admits_(bytes)) return buffer;
    std::unique_lock lock(mutex_);
    if (!closed_ && (!waiting_.empty() || !fits(me.capacity))) {
        const Waiting waiting;
        waiting_.push_back(&me);
        me.turn.wait(lock, [&] { return closed_ || (waiting_.front() == &me && fits(me.capacity)); });
        std::erase(waiting_, &me);
    }
    if (!closed_) buffer = taken(me.capacity);
    wake_first();
    return buffer;
}

Buffer BufferPool::lend_now(size_t bytes) {
    const size_t capacity = rounded_up(bytes);
    std::scoped_lock lock(mutex_);
    if (closed_ || admits_ || !waiting_.empty() || !fits(capacity)) return {};
    return taken(capacity);
}

void BufferPool::take_back(Piece piece) noexcept {
    std::scoped_lock lock(mutex_);
    in_use_ -= piece.capacity;
    if (total_ > budget_ || closed_) {
        munmap(piece.data, piece.capacity);
        total_ -= piece.capacity;
    } else {
        try {
            kept_.push_back(piece);
        } catch (const std::bad_alloc&) {
            munmap(piece.data, piece.capacity);
            total_ -= piece.capacity;
        }
    }
    wake_first();
}

size_t BufferPool::total() const {
    std::scoped_lock lock(mutex_);
    return total_;
}

size_t BufferPool::peak() const {
    std::scoped_lock lock(mutex_);
    return peak_;
}

void BufferPool::close() {
    std::scoped_lock lock(mutex_);
    closed_ = true;
    for (const Piece& piece : kept_) {
        munmap(piece.data, piece.capacity);
        total_ -= piece.capacity;
    }
    kept_.clear();
    for (Waiter* waiter : waiting_) waiter->turn.notify_one();
}

}  // namespace standpipe
