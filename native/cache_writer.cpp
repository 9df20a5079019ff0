#include "cache_writer.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "cache_files.h"
#include "faults.h"

namespace penstock {
namespace {

std::string failed_text(const Place& place, int error) {
    char room[128];
    return std::string(place.tier == Tier::spill ? "the spill" : "memory") +
           " can't be written: " + strerror_r(error, room, sizeof room);
}

}  // namespace

CacheStats CacheCounts::now() const noexcept {
    return {hits,   misses,    stored,       skipped,      stale,
            errors, hit_bytes, stored_bytes, spilled_hits, spilled_stored};
}

int CacheWriter::write_bytes(uint64_t record, const Place& place, std::span<const uint8_t> bytes) const {
    const Fault fault = faultpoint(Point::cache_row, record);
    if (fault.error) return fault.error;
    if (fault.cut) bytes = bytes.first(bytes.size() / 2);
    const int error = write_at(place.file->get(), bytes, static_cast<off_t>(place.offset));
    return fault.cut && error == 0 ? ENOSPC : error;
}

int CacheWriter::write_entry(uint64_t record, const CachedRow& row) {
    const Fault before = faultpoint(Point::cache_entry, record);
    const int error = before.error ? before.error : table.write(record, row);
    faultpoint(Point::cache_entry_after, record);
    return error;
}

bool CacheWriter::write(uint64_t record, const CachedRow& row, const Place& place,
                        std::span<const uint8_t> bytes) {
    int error = write_bytes(record, place, bytes);
    if (error == 0) error = write_entry(record, row);
    if (error != 0) {
        count_error(failed_text(place, error));
        ++counts.skipped;
        room.failed(place, error);
        return false;
    }
    room.written(place);
    ++counts.stored;
    counts.stored_bytes += bytes.size();
    if (place.tier == Tier::spill) ++counts.spilled_stored;
    return true;
}

void CacheWriter::count_error(std::string text) {
    std::scoped_lock lock(mutex_);
    if (counts.errors++ == 0) room.note();
    last_error_ = std::move(text);
}

std::string CacheWriter::last_error() const {
    std::scoped_lock lock(mutex_);
    return last_error_;
}

}  // namespace penstock
