#include "cache/extents.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "cache/files.h"

namespace standpipe {
namespace {

uint64_t key_of(uint32_t number, bool spilled) noexcept { return uint64_t{number} << 1 | (spilled ? 1 : 0); }

// Returns whether an error passes when others give something back; any other error is the file's.
bool is_shortage(int error) noexcept { return error == EMFILE || error == ENFILE || error == ENOMEM; }

}  // namespace

SharedFile shared_copy_of(int file) {
    Descriptor copy = Descriptor::copy_of(file);
    if (!copy) throw std::system_error(errno, std::generic_category(), "cache");
    return std::make_shared<const Descriptor>(std::move(copy));
}

ReadExtents::ReadExtents(int directory) : directory_(shared_copy_of(directory)) {}

void ReadExtents::set_spill(int directory) {
    SharedFile copy = shared_copy_of(directory);
    std::scoped_lock lock(mutex_);
    spill_ = std::move(copy);
    spill_lost_ = false;
    std::erase_if(gone_, [](uint64_t key) { return key & 1; });
}

SharedFile ReadExtents::open(uint32_t number, bool spilled) {
    const uint64_t key = key_of(number, spilled);
    char name[32];
    std::snprintf(name, sizeof name, "rows-%06u", number);
    std::unique_lock lock(mutex_);
    if (const auto found = open_.find(key); found != open_.end()) return found->second;
    errno = ENOENT;
    if (gone_.contains(key) || (spilled && spill_lost_)) return nullptr;
    const SharedFile directory = spilled ? spill_ : directory_;
    lock.unlock();  // a disk may take its time
    Descriptor opened = open_regular(directory ? directory->get() : -1, name, O_RDONLY);
    const int error = errno;
    lock.lock();
    if (!opened) {
        if (!is_shortage(error)) gone_.insert(key), any_gone_ = true;
        errno = error;
        return nullptr;
    }
    auto file = std::make_shared<const Descriptor>(std::move(opened));
    if (const auto [at, is_new] = open_.try_emplace(key, file); !is_new) return at->second;
    if (order_.size() < kMostOpen) {
        order_.push_back(key);
    } else {
        open_.erase(std::exchange(order_[hand_], key));
        hand_ = (hand_ + 1) % kMostOpen;
    }
    return file;
}

bool ReadExtents::is_gone(uint32_t number, bool spilled) {
    if (!any_gone_.load(std::memory_order_relaxed)) [[likely]]
        return false;
    if (spilled && spill_lost_) return true;
    std::scoped_lock lock(mutex_);
    return gone_.contains(key_of(number, spilled));
}

void ReadExtents::lose(uint32_t number, bool spilled) {
    std::scoped_lock lock(mutex_);
    gone_.insert(key_of(number, spilled));
    any_gone_ = true;
}

void ReadExtents::lose_spill() { spill_lost_ = any_gone_ = true; }

void ReadExtents::close() {
    std::scoped_lock lock(mutex_);
    open_.clear();
    order_.clear();
    hand_ = 0;
}

void ReadExtents::renew(uint32_t number, bool spilled) {
    std::scoped_lock lock(mutex_);
    gone_.erase(key_of(number, spilled));
    open_.erase(key_of(number, spilled));
}

}  // namespace standpipe
