// Memory for the rare rows that need a whole frame at once, under one cap for all threads.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "desk.h"

namespace penstock {

// Counts bytes; whoever holds some allocates and frees them itself. Served in the order of asking, so that a
// large image isn't overtaken for ever by small ones.
class SideArena {
  public:
    explicit SideArena(uint64_t cap_bytes) : cap_(cap_bytes) {}

    uint64_t cap() const noexcept { return cap_; }

    uint64_t peak() const {
        std::scoped_lock lock(mutex_);
        return peak_;
    }

    // Waits for `bytes` (at most cap()) to be free. False when the arena was closed meanwhile.
    bool acquire(uint64_t bytes) {
        std::unique_lock lock(mutex_);
        const uint64_t ticket = next_ticket_++;
        const auto my_turn = [&] { return closed_ || (ticket == serving_ && used_ + bytes <= cap_); };
        if (!my_turn()) {
            const Waiting waiting;
            changed_.wait(lock, my_turn);
        }
        ++serving_;
        if (!closed_) {
            used_ += bytes;
            peak_ = std::max(peak_, used_);
        }
        changed_.notify_all();
        return !closed_;
    }

    void release(uint64_t bytes) {
        std::scoped_lock lock(mutex_);
        used_ -= bytes;
        changed_.notify_all();
    }

    void close() {
        std::scoped_lock lock(mutex_);
        closed_ = true;
        changed_.notify_all();
    }

  private:
    const uint64_t cap_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    uint64_t used_ = 0, peak_ = 0, next_ticket_ = 0, serving_ = 0;
    bool closed_ = false;
};

}  // namespace penstock
