#include "cache/disk.h"

#include <cerrno>
#include <cstring>
#include <future>

#include "cache/files.h"
#include "memory/heartbeat.h"
#include "system/faults.h"

namespace standpipe {

Got read_row(ReadExtents& extents, uint64_t record, const CachedRow& row, std::span<uint8_t> out) {
    const Fault fault = faultpoint(row.spilled ? Point::cache_disk : Point::cache_read, record);
    const SharedFile file = extents.open(row.extent, row.spilled);
    ssize_t bytes = -1;
    if (file && !fault.error) bytes = read_at(file->get(), out, static_cast<off_t>(row.offset));
    const int error = fault.error ? fault.error : errno;
    // A disk that fails may take long to say so: not once for each of its rows.
    if (bytes < 0 && file) extents.lose(row.extent, row.spilled);
    if (bytes < 0) return {0, error};
    if (fault.damage) damage(out);
    return {static_cast<size_t>(bytes), 0};
}

Got CacheDisk::read(uint64_t record, const CachedRow& row, std::span<uint8_t> out) {
    // Of its own, since who reads may come back when `out` is gone.
    const std::shared_ptr<uint8_t[]> bytes(new uint8_t[out.size()]);
    auto reading = std::make_shared<std::packaged_task<Got()>>([extents = extents_, record, row, bytes] {
        return read_row(*extents, record, row, {bytes.get(), row.length});
    });
    std::future<Got> got = reading->get_future();
    if (!readers_->run([reading = std::move(reading)] { (*reading)(); }))
        return read_row(*extents_, record, row, out);
    const Waiting waiting;
    if (got.wait_for(patience_.load()) != std::future_status::ready) {
        extents_->lose_spill();
        return {0, ETIMEDOUT};
    }
    const Got read = got.get();
    std::memcpy(out.data(), bytes.get(), read.bytes);
    return read;
}

void CacheDisk::close(std::chrono::milliseconds patience) {
    readers_->close(extents_->has_lost_spill() ? std::chrono::milliseconds(0) : patience);
}

}  // namespace standpipe
