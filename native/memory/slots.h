// Fixed memory for batches: one anonymous arena of equal slots, and the ring that says who owns each.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "memory/forks.h"
#include "system/descriptor.h"

namespace standpipe {

// Wakes threads that wait for a change of a loader's slots or jobs. It is a sequence number, so a thread
// never misses a ring between two looks.
class Bell : public std::enable_shared_from_this<Bell> {
  public:
    void ring() {
        std::scoped_lock lock(mutex_);
        ++sequence_;
        changed_.notify_all();
        if (polled_) wake();
    }

    // Waits until the bell has been rung since the call that returned `seen`; returns the new number.
    uint64_t wait(uint64_t seen) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return sequence_ != seen; });
        return sequence_;
    }

    // Waits like `wait`, but at most `patience`. Returns `seen` if nothing rang.
    uint64_t wait_for(uint64_t seen, std::chrono::duration<double> patience) {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, patience, [&] { return sequence_ != seen; });
        return sequence_;
    }

    // Waits like `wait`, or until some of `descriptors` are readable; returns these too. For one thread at a
    // time. Throws std::system_error if the process can have no more descriptors.
    std::pair<uint64_t, std::vector<int>> wait_among(uint64_t seen, std::span<const int> descriptors,
                                                     std::optional<double> patience_s);

  private:
    void wake() noexcept;

    std::mutex mutex_;
    std::condition_variable changed_;
    uint64_t sequence_ = 0;
    Descriptor event_;     // can be read once the bell has rung, for `wait_among`
    bool polled_ = false;  // whether it is being waited for
};

// Anonymous shared memory (a memfd), mapped once and sparse: a slot takes memory from its first use on.
class Arena {
  public:
    // Throws std::system_error when the system refuses.
    Arena(size_t slot_bytes, size_t slots);
    ~Arena();
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    uint8_t* slot(size_t i) const noexcept { return base_ + i * stride_; }
    size_t slots() const noexcept { return slots_; }
    size_t slot_bytes() const noexcept { return slot_bytes_; }
    size_t stride_bytes() const noexcept { return stride_; }
    int descriptor() const noexcept { return fd_; }  // of the memfd, for another process to map

    // Gives a slot's memory back to the system; it reads as zeros until it is written again.
    void punch(size_t i) noexcept;

  private:
    size_t slot_bytes_, stride_, slots_;
    int fd_ = -1;
    uint8_t* base_ = nullptr;
};

enum class SlotState : uint8_t { absent, free, filling, ready, lent, spare, quarantined, held };

// A slot goes FREE → FILLING → READY → LENT → FREE, with one owner at any time. `absent` slots have no
// memory. `spare` ones came back while more than `base` were in use, and wait for trim() to free their
// memory. A `quarantined` slot was given up, and a thread that is stuck may still write into it; another slot
// may come in its place. The same holds for a `held` slot: this process has finished with it, but a child
// that was forked while it was lent may still read it. Every call takes the same time for any number of
// slots, unless its comment says otherwise.
class SlotRing : public std::enable_shared_from_this<SlotRing> {
  public:
    // `keeps`: slots keep their memory, which other code has pinned, until the ring is retired.
    SlotRing(std::shared_ptr<Arena> arena, size_t base, std::shared_ptr<Bell> bell, bool keeps = false);
    ~SlotRing();

    // Returns a slot to fill, or -1. At first there are up to `base` slots; with `grow` there may be one
    // more.
    int take(bool grow);
    void mark_ready(int slot);
    void mark_lent(int slot);
    // Gives up a slot that is being filled. It counts among all slots, but not among the `base` ones.
    void quarantine(int slot);
    // Ends the owner's use of a slot, in any state. Rings the bell.
    void release(int slot);
    // Releases every ready slot; looks at all.
    void release_ready();
    // Takes back slots that children don't hold any more; nothing else reports that. Rings the bell if there
    // are any.
    void reclaim();
    // Lent slots are held for the child as long as `base` others are left and the system allows it; beyond
    // that they are hidden from it.
    void before_fork() noexcept;
    void after_fork(bool in_child) noexcept;
    // Punches spare slots.
    void trim();
    // Retires a ring that won't be filled again: punches all slots except the lent ones, and these when they
    // come back.
    void retire();

    size_t count(SlotState state) const;
    // Returns whether a slot is being filled, ready, lent or quarantined.
    bool is_taken(int slot) const;
    // used: number of slots that have memory, which all but absent ones have. peak: the most there ever were.
    size_t used() const;
    size_t peak() const;
    const std::shared_ptr<Arena>& arena() const noexcept { return arena_; }

  private:
    struct Slot {
        SlotState state = SlotState::absent;
        int below = -1;          // in the stack of slots of this state
        Inherited by_child;      // begun when it was lent at a fork
        HiddenFor hidden_for{};  // from the child, at the fork that is under way
    };
    struct Stack {
        int top = -1;
    };

    // Functions that need the lock.
    void push(Stack& stack, int slot) noexcept;
    int pop(Stack& stack) noexcept;
    void move(int slot, SlotState to) noexcept;
    void put_back(int slot) noexcept;
    void reclaim_held() noexcept;
    size_t in_use() const noexcept {
        return arena_->slots() - counts_[static_cast<size_t>(SlotState::absent)];
    }

    const std::shared_ptr<Arena> arena_;
    const std::shared_ptr<Bell> bell_;
    const pid_t process_;
    mutable std::mutex mutex_;
    size_t base_;
    bool keeps_;
    std::vector<Slot> slots_;  // those that were ever used
    Stack free_, spare_, absent_;
    std::array<size_t, 8> counts_{};
    size_t peak_ = 0;
    size_t live_ = 0;  // slots in use or free, none quarantined or held
};

}  // namespace standpipe
