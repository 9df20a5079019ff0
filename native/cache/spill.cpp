#include "cache/spill.h"

#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "system/signals.h"

namespace standpipe {

// Returns where `bytes` bytes are free in one piece.
std::optional<size_t> CacheSpill::begin_for(size_t bytes) const {
    if (rows_.empty()) return bytes <= queue_bytes_ ? std::optional<size_t>(0) : std::nullopt;
    const size_t first = rows_.front().begin;
    if (end_ <= first) return bytes <= first - end_ ? std::optional(end_) : std::nullopt;
    if (bytes <= queue_bytes_ - end_) return end_;
    return bytes <= first ? std::optional<size_t>(0) : std::nullopt;
}

bool CacheSpill::start() {
    if (alive_) return true;
    try {
        if (!bytes_) bytes_ = std::make_unique_for_overwrite<uint8_t[]>(queue_bytes_);
        const SignalsBlocked blocked;
        std::thread([self = shared_from_this()] { self->work(); }).detach();
    } catch (const std::exception&) {  // the system refuses a thread, or memory
        return false;
    }
    return alive_ = true;
}

bool CacheSpill::put(uint64_t record, Claim claim, const CachedRow& row, const Place& place,
                     std::span<const uint8_t> bytes) {
    std::unique_lock lock(mutex_);
    const auto begin = begin_for(bytes.size());
    if (closed_ || !begin || !start()) return false;
    rows_.push_back({record, std::move(claim), row, place, *begin});
    Row& last = rows_.back();
    end_ = *begin + bytes.size();
    lock.unlock();
    std::memcpy(bytes_.get() + last.begin, bytes.data(), bytes.size());
    lock.lock();
    last.copied = true;
    changed_.notify_one();
    return true;
}

void CacheSpill::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock,
                      [this] { return abandoned_ || (rows_.empty() ? closed_ : rows_.front().copied); });
        if (abandoned_ || rows_.empty()) break;
        const Row& row = rows_.front();
        lock.unlock();
        writer_->write(row.record, row.row, row.place, {bytes_.get() + row.begin, row.row.length});
        lock.lock();
        rows_.pop_front();
    }
    alive_ = false;
    ended_.notify_all();
}

bool CacheSpill::close(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    closed_ = true;
    changed_.notify_one();
    if (ended_.wait_for(lock, patience, [this] { return !alive_; })) return true;
    abandoned_ = true;
    changed_.notify_one();
    // Their claims end, so that others may store them. The first one's bytes may be on their way.
    if (!rows_.empty()) {
        std::list<Row> first;
        first.splice(first.begin(), rows_, rows_.begin());
        writer_->counts.skipped += std::erase_if(rows_, [](const Row& row) { return row.copied; });
        rows_.splice(rows_.begin(), first);
    }
    return false;
}

}  // namespace standpipe
