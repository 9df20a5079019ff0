#include "slots.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace penstock {

Arena::Arena(size_t slot_bytes, size_t slots) : slot_bytes_(slot_bytes), slots_(slots) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    stride_ = (slot_bytes + page - 1) / page * page;
    fd_ = memfd_create("penstock", MFD_CLOEXEC);
    if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "memfd_create");
    const size_t bytes = stride_ * slots;
    void* base = MAP_FAILED;
    if (ftruncate(fd_, static_cast<off_t>(bytes)) == 0)
        base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_, 0);
    if (base == MAP_FAILED) {
        const int code = errno;
        close(fd_);
        throw std::system_error(code, std::generic_category(), "mapping the slots");
    }
    base_ = static_cast<uint8_t*>(base);
}

Arena::~Arena() {
    munmap(base_, stride_ * slots_);
    close(fd_);
}

void Arena::punch(size_t i) noexcept {
    // On failure the slot keeps its memory, which costs bytes and nothing else.
    (void)!fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(i * stride_),
                     static_cast<off_t>(stride_));
}

SlotRing::SlotRing(std::shared_ptr<Arena> arena, size_t base, std::shared_ptr<Bell> bell)
    : arena_(std::move(arena)),
      base_(base),
      bell_(std::move(bell)),
      states_(arena_->slots(), SlotState::absent) {}

int SlotRing::take(bool grow) {
    std::scoped_lock lock(mutex_);
    auto found = std::find(states_.begin(), states_.end(), SlotState::free);
    if (found == states_.end() && (live_ < base_ || grow)) {
        found = std::find(states_.begin(), states_.end(), SlotState::absent);
        if (found != states_.end()) ++live_;
    }
    if (found == states_.end()) return -1;
    *found = SlotState::filling;
    return static_cast<int>(found - states_.begin());
}

void SlotRing::mark_ready(int slot) {
    std::scoped_lock lock(mutex_);
    states_[static_cast<size_t>(slot)] = SlotState::ready;
}

void SlotRing::mark_lent(int slot) {
    std::scoped_lock lock(mutex_);
    states_[static_cast<size_t>(slot)] = SlotState::lent;
}

void SlotRing::release(int slot) {
    {
        std::scoped_lock lock(mutex_);
        auto& state = states_[static_cast<size_t>(slot)];
        if (live_ > base_) {
            state = SlotState::spare;
            --live_;
        } else {
            state = SlotState::free;
        }
    }
    bell_->ring();
}

void SlotRing::trim() {
    for (size_t i = 0; i < states_.size(); ++i) {
        {
            std::scoped_lock lock(mutex_);
            if (states_[i] != SlotState::spare) continue;
        }
        // Nobody else touches a spare slot, so the lock needn't be held over the system call.
        arena_->punch(i);
        std::scoped_lock lock(mutex_);
        states_[i] = SlotState::absent;
    }
}

size_t SlotRing::count(SlotState state) const {
    std::scoped_lock lock(mutex_);
    return static_cast<size_t>(std::count(states_.begin(), states_.end(), state));
}

}  // namespace penstock
