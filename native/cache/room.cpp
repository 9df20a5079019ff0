#include "cache/room.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace standpipe {
namespace {

// The file takes no more, which says nothing of another one.
bool means_full(int error) noexcept {
    return error == ENOSPC || error == EDQUOT || error == EFBIG || error == ENOMEM;
}

}  // namespace

bool CacheRoom::add(Tier tier, uint32_t extent, SharedFile file, uint64_t begin, uint64_t end) {
    std::scoped_lock lock(mutex_);
    TierRoom& there = room(tier);
    if (closed_ || there.ended) return false;
    if (there.extents.size() == kMostExtents)
        there.extents.erase(std::ranges::min_element(there.extents, {}, &Free::left));
    there.extents.push_back({extent, std::move(file), begin, end});
    granted_ = end - begin;
    asked_ = refused_ = false;
    return true;
}

void CacheRoom::allow_spill() {
    std::scoped_lock lock(mutex_);
    spills_ = true;
}

std::optional<Place> CacheRoom::take_from(Tier tier, uint64_t bytes) {
    auto& extents = room(tier).extents;
    const auto fits = [bytes](const Free& free) { return bytes <= free.left(); };
    const auto found = std::ranges::find_if(extents, fits);
    if (found == extents.end()) return std::nullopt;
    return Place{tier, found->extent, std::exchange(found->next, found->next + bytes), found->file};
}

std::optional<Place> CacheRoom::take(uint64_t bytes) {
    std::scoped_lock lock(mutex_);
    row_bytes_ = std::max(row_bytes_, bytes);
    auto place = closed_ ? std::nullopt : take_from(Tier::memory, bytes);
    if (!place && !closed_) place = take_from(Tier::spill, bytes);
    skipped_ = skipped_ || !place;
    ask();
    return place;
}

void CacheRoom::give_back(const Place& place, uint64_t bytes) {
    std::scoped_lock lock(mutex_);
    for (Free& free : room(place.tier).extents)
        if (free.extent == place.extent && free.next == place.offset + bytes) free.next = place.offset;
}

void CacheRoom::written(const Place& place) {
    std::scoped_lock lock(mutex_);
    room(place.tier).failures = 0;
}

void CacheRoom::failed(const Place& place, int error) {
    std::scoped_lock lock(mutex_);
    TierRoom& there = room(place.tier);
    const size_t gone = std::erase_if(there.extents, [&](const Free& f) { return f.extent == place.extent; });
    if (gone > 0) ++there.failures;  // threads that failed at the same one count once
    there.ended = there.ended || !means_full(error) || there.failures >= kMostFailures;
    if (there.ended) there.extents.clear();
    skipped_ = due_ = true;
    changed_.notify_all();
    ask();
}

void CacheRoom::end(Tier tier) {
    std::scoped_lock lock(mutex_);
    room(tier).ended = true;
    room(tier).extents.clear();
    ask();
}

bool CacheRoom::is_wanting() const {
    const bool takes = !tiers_[0].ended || (spills_ && !tiers_[1].ended);
    if (closed_ || refused_ || !takes) return false;
    uint64_t left = 0;
    for (const TierRoom& tier : tiers_)
        for (const Free& free : tier.extents) left = std::max(left, free.left());
    return left < std::max(granted_ / 2, row_bytes_) || left == 0;
}

// Wakes the threads in `wait`, once for every extent that is wanted.
void CacheRoom::ask() {
    if (asked_ || !is_wanting()) return;
    asked_ = due_ = true;
    changed_.notify_all();
}

Wants CacheRoom::wants() const {
    std::scoped_lock lock(mutex_);
    return {is_wanting(), row_bytes_, skipped_, !tiers_[0].ended, spills_ && !tiers_[1].ended};
}

void CacheRoom::note() {
    std::scoped_lock lock(mutex_);
    due_ = true;
    changed_.notify_all();
}

bool CacheRoom::wait(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, patience, [this] { return closed_ || due_; });
    due_ = false;
    return !closed_;
}

void CacheRoom::refuse() {
    std::scoped_lock lock(mutex_);
    refused_ = true;
}

void CacheRoom::ask_again() {
    std::scoped_lock lock(mutex_);
    if (std::exchange(refused_, false)) asked_ = false;
}

void CacheRoom::close() {
    std::scoped_lock lock(mutex_);
    closed_ = true;
    for (TierRoom& tier : tiers_) tier.extents.clear();
    changed_.notify_all();
}

}  // namespace standpipe
