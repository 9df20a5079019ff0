#include "cache/store.h"

#include <exception>
#include <new>
#include <stdexcept>
#include <utility>

#include "cache/files.h"
#include "system/checksum.h"

namespace standpipe {
namespace {

constexpr uint64_t kBits = 64;

uint64_t words_for(uint64_t records) { return (records + kBits - 1) / kBits; }

}  // namespace

CacheStore::CacheStore(int directory, uint64_t records, uint64_t salt, bool writes, size_t queue_bytes)
    : writer_(std::make_shared<CacheWriter>(directory, records, salt, writes)),
      spill_(std::make_shared<CacheSpill>(writer_, queue_bytes)),
      extents_(std::make_shared<ReadExtents>(directory)),
      disk_(extents_),
      checked_(std::make_unique<std::atomic<uint64_t>[]>(words_for(records))) {}

CacheStore::~CacheStore() { close(std::chrono::milliseconds(0)); }

void CacheStore::set_spill(int directory, std::chrono::milliseconds patience) {
    disk_.set_patience(patience);
    extents_->set_spill(directory);
    writer_->room.allow_spill();
}

uint64_t CacheStore::records() const noexcept { return writer_->table.records(); }

std::optional<CachedRow> CacheStore::find(uint64_t record) noexcept {
    bool wrong = false;
    auto row = record < records() ? writer_->table.find(record, wrong) : std::nullopt;
    if (wrong) writer_->count_error("an entry of the table is damaged or can't be read");
    if (row && extents_->is_gone(row->extent, row->spilled)) row.reset();
    return row;
}

void CacheStore::have(uint64_t first, std::span<bool> found) noexcept { writer_->table.have(first, found); }

Got CacheStore::read_bytes(uint64_t record, const CachedRow& row, std::span<uint8_t> out) {
    // In a forked process there are no threads.
    if (!row.spilled || writer_->table.is_forked()) return read_row(*extents_, record, row, out);
    const Got got = disk_.read(record, row, out);
    if (extents_->has_lost_spill()) writer_->room.end(Tier::spill);
    return got;
}

// Returns whether the bytes are those that were stored. If not, counts an error, and the row isn't found
// again.
bool CacheStore::read_right(uint64_t record, const CachedRow& row, std::span<uint8_t> out) {
    const Got got = read_bytes(record, row, out);
    if (got.error != 0) {
        if (extents_->is_gone(row.extent, row.spilled)) writer_->table.forget(record, row);
        if (row.spilled && extents_->has_lost_spill())
            writer_->count_error("its disk hangs, and is left alone");
        else writer_->count_error("an extent can't be read", got.error);
        return false;
    }
    if (got.bytes < out.size() || checksum(out) != row.checksum) {
        writer_->table.forget(record, row);
        writer_->count_error("a row isn't what was stored");
        return false;
    }
    return true;
}

bool CacheStore::read(uint64_t record, const CachedRow& row, uint8_t* out) noexcept {
    CacheCounts& counts = writer_->counts;
    bool right = false;
    try {
        right = read_right(record, row, {out, row.length});
    } catch (const std::exception&) {  // no memory, or it's just being closed
        ++counts.errors;
    }
    if (!right) {
        ++counts.misses;
        return false;
    }
    ++counts.hits;
    counts.hit_bytes += row.length;
    if (row.spilled) ++counts.spilled_hits;
    return true;
}

void CacheStore::count_miss() noexcept { ++writer_->counts.misses; }
void CacheStore::count_stale() noexcept { ++writer_->counts.stale; }

bool CacheStore::skip() noexcept {
    ++writer_->counts.skipped;
    return false;
}

bool CacheStore::put(uint64_t record, std::span<const uint8_t> bytes, const Stamp& stamp, bool damaged,
                     bool truncated, const std::optional<Stamp>& stale) noexcept try {
    CacheTable& table = writer_->table;
    if (record >= records() || bytes.empty() || bytes.size() > kMostCachedBytes) return skip();
    Claim claim = table.claim(record);
    if (!claim) return skip();
    if (const auto there = find(record); there && there->stamp != stale) return false;
    const auto place = writer_->room.take(bytes.size());
    if (!place) return skip();
    const bool spilled = place->tier == Tier::spill;
    const CachedRow row{place->extent,   place->offset, static_cast<uint32_t>(bytes.size()),
                        checksum(bytes), spilled,       damaged,
                        truncated,       stamp};
    if (!spilled) return writer_->write(record, row, *place, bytes);
    try {
        if (spill_->put(record, std::move(claim), row, *place, bytes)) return true;
    } catch (const std::bad_alloc&) {
        // It isn't kept, and its room goes back.
    }
    writer_->room.give_back(*place, bytes.size());
    return skip();
} catch (const std::bad_alloc&) {
    return skip();
}

bool CacheStore::checked(uint64_t record) const noexcept {
    return checked_[record / kBits].load(std::memory_order_relaxed) >> (record % kBits) & 1;
}

void CacheStore::set_checked(uint64_t record) noexcept {
    checked_[record / kBits].fetch_or(uint64_t{1} << (record % kBits), std::memory_order_relaxed);
}

void CacheStore::forget_checks() noexcept {
    for (uint64_t i = 0; i < words_for(records()); ++i) checked_[i].store(0, std::memory_order_relaxed);
}

bool CacheStore::add_extent(uint32_t number, int file, uint64_t begin, uint64_t end, bool spilled) {
    if (number >= kMostExtents || begin > end || end > kMostExtentBytes)
        throw std::invalid_argument("no extent has such a number, or such bounds");
    extents_->renew(number, spilled);
    return writer_->room.add(spilled ? Tier::spill : Tier::memory, number, shared_copy_of(file), begin, end);
}

CacheStore::Wants CacheStore::wants() const {
    return writer_->table.writes() ? writer_->room.wants() : Wants{false, 0, false, false, false};
}

bool CacheStore::wait(std::chrono::milliseconds patience) { return writer_->room.wait(patience); }
void CacheStore::refuse() { writer_->room.refuse(); }
void CacheStore::ask_again() { writer_->room.ask_again(); }
CacheStats CacheStore::stats() const { return writer_->counts.now(); }
std::string CacheStore::last_error() const { return writer_->last_error(); }

bool CacheStore::close(std::chrono::milliseconds patience) {
    if (writer_->table.is_forked()) return true;  // its threads, and who held its locks, are the parent's
    const bool written = spill_->close(patience);
    writer_->room.close();
    disk_.close(patience);
    extents_->close();
    return written && !extents_->has_lost_spill();
}

}  // namespace standpipe
