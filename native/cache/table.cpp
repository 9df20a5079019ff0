#include "cache/table.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "cache/files.h"
#include "system/faults.h"

namespace standpipe {
namespace {

// Beyond these, rows that can't be read are tried, and missed, again and again.
constexpr size_t kMostForgotten = 1 << 16;
constexpr size_t kEntriesAtOnce = 256;

off_t place_of(uint64_t record) noexcept {
    return static_cast<off_t>(kCacheHeaderBytes + record * kCacheEntryBytes);
}

uint32_t check_in(const CacheEntry& entry) noexcept {
    uint32_t check;
    std::memcpy(&check, entry.data(), sizeof check);
    return check;
}

}  // namespace

int forks() noexcept {
    static std::atomic<int> count{0};
    static const int once = pthread_atfork(nullptr, nullptr, [] { ++count; });
    (void)once;
    return count;
}

Claim::Claim(Claim&& other) noexcept : table_(std::exchange(other.table_, nullptr)), record_(other.record_) {}

Claim& Claim::operator=(Claim&& other) noexcept {
    std::swap(table_, other.table_);
    std::swap(record_, other.record_);
    return *this;
}

Claim::~Claim() {
    if (table_) table_->release(record_);
}

CacheTable::CacheTable(int directory, uint64_t records, uint64_t salt, bool writes)
    : records_(records), salt_(salt), writes_(writes) {
    if (records > static_cast<uint64_t>(INT64_MAX) / (2 * kCacheEntryBytes))
        throw std::invalid_argument("no table has entries for so many records");
    file_ = open_regular(directory, "table", writes ? O_RDWR : O_RDONLY);
    if (!file_) throw std::system_error(errno, std::generic_category(), "table");
    CacheHeader header{};
    const ssize_t got = read_at(file_.get(), header, 0);
    if (got < 0) throw std::system_error(errno, std::generic_category(), "table");
    const WrongHeader wrong =
        wrong_with_header(std::span(header).first(static_cast<size_t>(got)), records, salt);
    if (wrong.is_foreign) throw std::runtime_error("table: " + wrong.text);
    if (!wrong.text.empty()) throw std::invalid_argument("table: " + wrong.text);
}

std::optional<CachedRow> CacheTable::find(uint64_t record, bool& wrong) noexcept {
    CacheEntry entry{};
    // Twice: one that is just being replaced may be half of each.
    for (int tries = 0; tries < 2; ++tries) {
        const Fault fault = faultpoint(Point::cache_read, record);
        if (fault.error || read_at(file_.get(), entry, place_of(record)) < 0) break;
        if (fault.damage) damage(entry);
        if (is_blank(entry)) return std::nullopt;
        if (const auto row = row_of(entry, record, salt_)) {
            if (is_forgotten(record, check_in(entry))) return std::nullopt;
            return row;
        }
    }
    wrong = true;
    return std::nullopt;
}

void CacheTable::have(uint64_t first, std::span<bool> found) noexcept {
    std::ranges::fill(found, false);
    std::array<CacheEntry, kEntriesAtOnce> entries;
    while (!found.empty()) {
        const size_t count = std::min(found.size(), entries.size());
        std::memset(entries.data(), 0, sizeof entries);
        const std::span bytes(entries.front().data(), count * kCacheEntryBytes);
        if (read_at(file_.get(), bytes, place_of(first)) < 0) return;
        for (size_t i = 0; i < count; ++i)
            found[i] = !is_blank(entries[i]) && row_of(entries[i], first + i, salt_).has_value();
        first += count;
        found = found.subspan(count);
    }
}

void CacheTable::forget(uint64_t record, const CachedRow& row) {
    std::scoped_lock lock(mutex_);
    if (forgotten_.size() >= kMostForgotten) return;
    forgotten_[record] = check_in(cache_entry(row, record, salt_));
    forgets_ = true;
}

bool CacheTable::is_forgotten(uint64_t record, uint32_t check) noexcept {
    if (!forgets_.load(std::memory_order_relaxed)) [[likely]]
        return false;
    std::scoped_lock lock(mutex_);
    const auto found = forgotten_.find(record);
    return found != forgotten_.end() && found->second == check;
}

int CacheTable::lock(uint64_t record, short kind) const noexcept {
    struct flock range{};
    range.l_type = kind;
    range.l_whence = SEEK_SET;
    range.l_start = place_of(record);
    range.l_len = kCacheEntryBytes;
    while (fcntl(file_.get(), F_OFD_SETLK, &range) != 0)
        if (errno != EINTR) return errno;
    return 0;
}

Claim CacheTable::claim(uint64_t record) {
    if (!writes()) return {};
    std::scoped_lock guard(mutex_);
    if (!claimed_.insert(record).second) return {};
    if (lock(record, F_WRLCK) == 0) return Claim(this, record);
    claimed_.erase(record);
    return {};
}

void CacheTable::release(uint64_t record) noexcept {
    if (!writes()) return;
    std::scoped_lock guard(mutex_);
    lock(record, F_UNLCK);
    claimed_.erase(record);
}

int CacheTable::write(uint64_t record, const CachedRow& row) noexcept {
    const int error = write_at(file_.get(), cache_entry(row, record, salt_), place_of(record));
    if (error != 0) return error;
    if (forgets_) {
        std::scoped_lock lock(mutex_);
        forgotten_.erase(record);
    }
    return 0;
}

}  // namespace standpipe
