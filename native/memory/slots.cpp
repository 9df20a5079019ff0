#include "memory/slots.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <system_error>
#include <utility>

namespace standpipe {

void Bell::wake() noexcept { (void)eventfd_write(event_.get(), 1); }

std::pair<uint64_t, std::vector<int>> Bell::wait_among(uint64_t seen, std::span<const int> descriptors,
                                                       std::optional<double> patience_s) {
    std::vector<pollfd> polled;
    for (const int descriptor : descriptors) polled.push_back({descriptor, POLLIN, 0});
    int milliseconds = patience_s ? static_cast<int>(std::min(std::ceil(*patience_s * 1e3), 1e9)) : -1;
    {
        std::scoped_lock lock(mutex_);
        if (!event_) event_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        if (!event_) throw std::system_error(errno, std::generic_category(), "eventfd");
        if (sequence_ != seen) milliseconds = 0;
        else polled_ = true;
        polled.push_back({event_.get(), POLLIN, 0});
    }
    (void)poll(polled.data(), polled.size(), milliseconds);  // interrupted, it finds nothing
    std::vector<int> readable;
    for (size_t i = 0; i < descriptors.size(); ++i)
        if (polled[i].revents != 0) readable.push_back(polled[i].fd);
    std::scoped_lock lock(mutex_);
    polled_ = false;
    if (polled.back().revents != 0) {
        eventfd_t rings;
        (void)eventfd_read(event_.get(), &rings);
    }
    return {sequence_, readable};
}

Arena::Arena(size_t slot_bytes, size_t slots) : slot_bytes_(slot_bytes), slots_(slots) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    stride_ = (slot_bytes + page - 1) / page * page;
    fd_ = memfd_create("standpipe", MFD_CLOEXEC);
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

SlotRing::SlotRing(std::shared_ptr<Arena> arena, size_t base, std::shared_ptr<Bell> bell, bool keeps)
    : arena_(std::move(arena)), bell_(std::move(bell)), process_(getpid()), base_(base), keeps_(keeps) {
    counts_[static_cast<size_t>(SlotState::absent)] = arena_->slots();
    see_to_at_fork(this);
}

SlotRing::~SlotRing() { forget_at_fork(this); }

void SlotRing::push(Stack& stack, int slot) noexcept {
    slots_[static_cast<size_t>(slot)].below = std::exchange(stack.top, slot);
}

int SlotRing::pop(Stack& stack) noexcept {
    const int slot = stack.top;
    if (slot >= 0) stack.top = slots_[static_cast<size_t>(slot)].below;
    return slot;
}

void SlotRing::move(int slot, SlotState to) noexcept {
    SlotState& state = slots_[static_cast<size_t>(slot)].state;
    --counts_[static_cast<size_t>(state)];
    ++counts_[static_cast<size_t>(to)];
    state = to;
}

void SlotRing::put_back(int slot) noexcept {
    const SlotState state = slots_[static_cast<size_t>(slot)].state;
    if (state == SlotState::quarantined || state == SlotState::held) ++live_;
    const bool surplus = live_ > base_ && !keeps_;
    if (surplus) --live_;
    move(slot, surplus ? SlotState::spare : SlotState::free);
    push(surplus ? spare_ : free_, slot);
}

int SlotRing::take(bool grow) {
    std::scoped_lock lock(mutex_);
    reclaim_held();
    int slot = pop(free_);
    if (slot < 0 && (live_ < base_ || grow)) {
        slot = pop(absent_);
        if (slot < 0 && slots_.size() < arena_->slots()) {
            slot = static_cast<int>(slots_.size());
            slots_.emplace_back();
        }
        if (slot >= 0) ++live_;
    }
    if (slot >= 0) move(slot, SlotState::filling);
    peak_ = std::max(peak_, in_use());
    return slot;
}

void SlotRing::mark_ready(int slot) {
    std::scoped_lock lock(mutex_);
    move(slot, SlotState::ready);
}

void SlotRing::mark_lent(int slot) {
    std::scoped_lock lock(mutex_);
    move(slot, SlotState::lent);
}

void SlotRing::quarantine(int slot) {
    std::scoped_lock lock(mutex_);
    --live_;
    move(slot, SlotState::quarantined);
}

void SlotRing::release(int slot) {
    // In a forked child nobody fills slots.
    if (getpid() != process_) return slots_[static_cast<size_t>(slot)].by_child.let_go();
    bool retired;
    {
        std::scoped_lock lock(mutex_);
        Inherited& by_child = slots_[static_cast<size_t>(slot)].by_child;
        by_child.let_go();
        if (by_child.is_held()) {
            --live_;
            move(slot, SlotState::held);
        } else {
            put_back(slot);
        }
        retired = base_ == 0;
    }
    if (retired) trim();
    bell_->ring();
}

void SlotRing::reclaim_held() noexcept {
    if (counts_[static_cast<size_t>(SlotState::held)] == 0) return;
    for (size_t i = 0; i < slots_.size(); ++i)
        if (slots_[i].state == SlotState::held && !slots_[i].by_child.is_held())
            put_back(static_cast<int>(i));
}

void SlotRing::reclaim() {
    {
        std::scoped_lock lock(mutex_);
        const size_t before = counts_[static_cast<size_t>(SlotState::held)];
        reclaim_held();
        if (counts_[static_cast<size_t>(SlotState::held)] == before) return;
    }
    bell_->ring();
}

void SlotRing::before_fork() noexcept {
    mutex_.lock();
    // With `keeps`, lent slots are a device's, and nobody can have a view of them.
    if (getpid() != process_ || keeps_ || counts_[static_cast<size_t>(SlotState::lent)] == 0) return;
    size_t kept = counts_[static_cast<size_t>(SlotState::held)];
    for (const Slot& slot : slots_) kept += slot.by_child.begun();
    for (Slot& slot : slots_) {
        if (slot.state != SlotState::lent || slot.by_child.begun()) continue;
        const bool fits = base_ == 0 || kept + base_ < arena_->slots();
        const int error = fits ? slot.by_child.begin() : 0;
        if (error) note_refusal(error);
        slot.hidden_for = !fits ? HiddenFor::budget : error ? HiddenFor::system : HiddenFor::nothing;
        kept += slot.by_child.begun();
    }
}

void SlotRing::after_fork(bool in_child) noexcept {
    for (size_t i = 0; i < slots_.size(); ++i) {
        const HiddenFor reason = std::exchange(slots_[i].hidden_for, HiddenFor::nothing);
        if (in_child && reason != HiddenFor::nothing) hide(arena_->slot(i), arena_->stride_bytes(), reason);
    }
    mutex_.unlock();
}

void SlotRing::release_ready() {
    {
        std::scoped_lock lock(mutex_);
        for (size_t i = 0; i < slots_.size(); ++i)
            if (slots_[i].state == SlotState::ready) put_back(static_cast<int>(i));
    }
    bell_->ring();
}

void SlotRing::trim() {
    std::unique_lock lock(mutex_);
    reclaim_held();
    for (int slot; (slot = pop(spare_)) >= 0;) {
        // Nobody else knows the slot now, so the lock needn't be held over the system call.
        lock.unlock();
        arena_->punch(static_cast<size_t>(slot));
        lock.lock();
        move(slot, SlotState::absent);
        push(absent_, slot);
    }
}

void SlotRing::retire() {
    {
        std::scoped_lock lock(mutex_);
        base_ = 0;
        keeps_ = false;
        free_ = {};
        for (size_t i = 0; i < slots_.size(); ++i) {
            const SlotState state = slots_[i].state;
            if (state == SlotState::free || state == SlotState::filling || state == SlotState::ready ||
                state == SlotState::quarantined)
                put_back(static_cast<int>(i));
        }
    }
    trim();
}

size_t SlotRing::used() const {
    std::scoped_lock lock(mutex_);
    return in_use();
}

size_t SlotRing::peak() const {
    std::scoped_lock lock(mutex_);
    return peak_;
}

size_t SlotRing::count(SlotState state) const {
    std::scoped_lock lock(mutex_);
    return counts_[static_cast<size_t>(state)];
}

bool SlotRing::is_taken(int slot) const {
    std::scoped_lock lock(mutex_);
    if (slot < 0 || static_cast<size_t>(slot) >= slots_.size()) return false;
    const SlotState state = slots_[static_cast<size_t>(slot)].state;
    return state == SlotState::filling || state == SlotState::ready || state == SlotState::lent ||
           state == SlotState::quarantined;
}

}  // namespace standpipe
