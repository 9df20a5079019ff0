#include "cache/writer.h"

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "cache/files.h"
#include "system/faults.h"

namespace standpipe {
namespace {

const char* failed_text(Tier tier) noexcept {
    return tier == Tier::spill ? "the spill can't be written" : "memory can't be written";
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
                        std::span<const uint8_t> bytes) noexcept {
    int error = write_bytes(record, place, bytes);
    if (error == 0) error = write_entry(record, row);
    if (error != 0) {
        room.failed(place, error);
        ++counts.skipped;
        count_error(failed_text(place.tier), error);
        return false;
    }
    room.written(place);
    ++counts.stored;
    counts.stored_bytes += bytes.size();
    if (place.tier == Tier::spill) ++counts.spilled_stored;
    return true;
}

void CacheWriter::count_error(const char* what, int error) noexcept {
    try {
        std::string text = what;
        char said[128];
        if (error != 0) text.append(": ").append(strerror_r(error, said, sizeof said));
        std::scoped_lock lock(mutex_);
        last_error_ = std::move(text);
    } catch (const std::bad_alloc&) {
        // It counts without words.
    }
    if (counts.errors++ == 0) room.note();
}

std::string CacheWriter::last_error() const {
    std::scoped_lock lock(mutex_);
    return last_error_;
}

}  // namespace standpipe
