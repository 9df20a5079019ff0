// Limits the memory for the rare rows that need a whole frame at once, under one cap for all threads or
// processes.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "memory/shared_side.h"

namespace standpipe {

// Lets the C library return memory to the system that the calling thread has freed, and memory of other
// threads except at the end of their heaps.
void give_back_free_memory() noexcept;

// Counts bytes; callers allocate and free the memory themselves. Callers are served in the order of their
// calls, so small images can't delay a large one for ever.
//
// Freed memory may stay with the C library: once it has freed a large piece, it keeps up to 64 MiB for every
// thread. So freed bytes count as its own, and it has to return all of them before they would exceed the cap.
class SideArena {
  public:
    explicit SideArena(uint64_t cap_bytes) : cap_(cap_bytes) {}
    // Uses one account of an arena that several processes share. For one thread.
    SideArena(std::shared_ptr<SharedSide> shared, size_t account)
        : cap_(0), shared_(std::move(shared)), account_(account) {}

    uint64_t cap() const noexcept { return shared_ ? shared_->cap() : cap_; }
    uint64_t used() const;
    uint64_t peak() const;

    void close();  // ends every wait

    // The part of the arena that one row holds.
    class Part {
      public:
        explicit Part(SideArena& arena) noexcept : arena_(arena) {}
        Part(const Part&) = delete;
        Part& operator=(const Part&) = delete;
        ~Part() { release(); }

        uint64_t bytes() const noexcept { return bytes_; }
        uint64_t cap() const noexcept { return arena_.cap(); }
        bool fits(uint64_t more) const noexcept { return bytes_ + more <= cap(); }

        // Waits for `more` bytes more, which must fit. Returns false if the arena was closed during the wait.
        //
        // With `more_follows`, no other part is served until this one asks again or ends. A row that knows
        // its need only when it has some of it could otherwise wait for another such row, and that one for
        // it.
        bool add(uint64_t more, bool more_follows = false);
        void release() noexcept;

      private:
        SideArena& arena_;
        uint64_t bytes_ = 0;
        bool has_turn_ = false;
    };

    // Takes bytes that no block of code ends; release() gives them back.
    bool acquire(uint64_t bytes) { return take(bytes, false, false); }
    void release(uint64_t bytes) noexcept { give_back(bytes, false); }  // by the thread that has freed them

  private:
    bool take(uint64_t bytes, bool has_turn, bool keeps_turn);
    void give_back(uint64_t bytes, bool had_turn) noexcept;

    const uint64_t cap_;
    const std::shared_ptr<SharedSide> shared_;
    const size_t account_ = 0;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    uint64_t used_ = 0, peak_ = 0;
    uint64_t next_ticket_ = 0, serving_ = 0;
    bool closed_ = false;
};

}  // namespace standpipe
