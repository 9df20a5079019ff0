#include "memory/side_arena.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>

#include "memory/heartbeat.h"

namespace standpipe {
namespace {

constexpr uint64_t kTrimmed = 4 << 20;  // bytes of a part from which on it is worth it

}  // namespace

// The C library would do so in free(), but only above a threshold that it raises by itself, to twice the
// largest block that was ever freed and at most 64 MiB; and malloc_trim() leaves out the end of a thread's
// heap, where most of it lies. A threshold once set isn't raised any more, so both get the values that they
// would reach.
void give_back_free_memory() noexcept {
#ifdef __GLIBC__
    constexpr int kMost = 64 << 20, kLeast = 128 << 10;
    mallopt(M_TRIM_THRESHOLD, kLeast);
    void* volatile block = malloc(kLeast - 4096);  // large enough for free() to look at the heap's end
    free(block);
    mallopt(M_TRIM_THRESHOLD, kMost);
    mallopt(M_MMAP_THRESHOLD, kMost / 2);
    malloc_trim(0);
#endif
}

uint64_t SideArena::used() const {
    if (shared_) return shared_->used();
    std::scoped_lock lock(mutex_);
    return used_;
}

uint64_t SideArena::peak() const {
    if (shared_) return shared_->peak();
    std::scoped_lock lock(mutex_);
    return peak_;
}

void SideArena::close() {
    std::scoped_lock lock(mutex_);
    closed_ = true;
    changed_.notify_all();
}

bool SideArena::take(uint64_t bytes, bool has_turn, bool keeps_turn) {
    if (shared_) {
        shared_->take(account_, bytes, has_turn, keeps_turn);
        return true;
    }
    std::unique_lock lock(mutex_);
    const uint64_t ticket = has_turn ? serving_ : next_ticket_++;
    const auto my_turn = [&] { return closed_ || (ticket == serving_ && used_ + bytes <= cap_); };
    if (!my_turn()) {
        const Waiting waiting;
        changed_.wait(lock, my_turn);
    }
    if (closed_) return false;
    used_ += bytes;
    peak_ = std::max(peak_, used_);
    if (!keeps_turn) ++serving_;
    changed_.notify_all();
    return true;
}

void SideArena::give_back(uint64_t bytes, bool had_turn) noexcept {
    if (bytes >= kTrimmed) give_back_free_memory();
    if (shared_) return shared_->give_back(account_, bytes, had_turn);
    std::scoped_lock lock(mutex_);
    used_ -= bytes;
    if (had_turn) ++serving_;
    changed_.notify_all();
}

bool SideArena::Part::add(uint64_t more, bool more_follows) {
    if (!arena_.take(more, has_turn_, more_follows)) return false;
    bytes_ += more;
    has_turn_ = more_follows;
    return true;
}

void SideArena::Part::release() noexcept {
    if (bytes_ == 0 && !has_turn_) return;
    arena_.give_back(bytes_, has_turn_);
    bytes_ = 0;
    has_turn_ = false;
}

}  // namespace standpipe
