#include "pool_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cache_check.h"

namespace penstock {
std::optional<ReadResult> Pool::State::find_kept(ReadyRow& row) {
    const JobCache& cache = *row.job->cache;
    CacheStore& store = *cache.store;
    const uint64_t record = row.job->record(row.row);
    std::optional<CachedRow> kept = store.find(record);
    if (!kept) {
        store.count_miss();
        return std::nullopt;
    }
    ReadResult read;
    if (cache.checks && !store.checked(record)) {
        Looked now;
        if (!is_as_stored(store, record, *kept, row.job->path(row.row), &now)) {
            row.stale = kept->stamp;
            return std::nullopt;
        }
        read.took_s = now.took_s;
        read.blocked_s = now.blocked_s;
    }
    if (cache.before && !kept->spilled) {  // goes into the slot without a buffer
        row.kept = kept;
        return read;
    }
    if (kept->length > max_encoded()) return std::nullopt;  // as its file is
    read.buffer = buffers->lend(std::max<size_t>(kept->length, 1));
    if (!read.buffer.data()) return std::nullopt;  // which reading the file says too
    if (!store.read(record, *kept, read.buffer.data())) {
        row.stale = kept->stamp;
        return std::nullopt;
    }
    read.size = kept->length;
    row.kept = kept;
    return read;
}

// A row of what is kept; nothing when that isn't what was stored.
std::optional<Outcome> Pool::State::make_of_kept(RowMaker& maker, ReadyRow& row) {
    Job& job = *row.job;
    const size_t bytes = job.cache->before->format.row_bytes();
    if (row.kept->length != bytes) return std::nullopt;
    uint8_t* const pixels = kept_pixels(maker, job, row.row);
    if (row.read.buffer.data()) std::memcpy(pixels, row.read.buffer.data(), bytes);
    else if (!job.cache->store->read(job.record(row.row), *row.kept, pixels)) return std::nullopt;
    return finished(maker, job, row.row, pixels,
                    {Outcome::Kind::ok, row.kept->damaged, {}, row.kept->truncated});
}

Outcome Pool::State::make_kept(RowMaker& maker, ReadyRow& row) {
    Job& job = *row.job;
    const SampleKey key = job.key(row.row);
    if (!job.reads_files()) {
        row.kept = job.cache->store->find(job.record(row.row));
        if (!row.kept) job.cache->store->count_miss();
    }
    if (row.kept) {
        if (auto made = make_of_kept(maker, row)) return std::move(*made);
        row.stale = row.kept->stamp;
        row.read = {};
        if (job.reads_files()) row.read = read_file(row);
    }
    if (!job.reads_files()) {
        const PixelInput* const from = pixels_of(job, row.row);
        if (!from) return Outcome::decode_error("its pixels are in no array");
        return made_and_kept(maker, job, row.row, {}, row.stale, [&](const Program& program, uint8_t* out) {
            return maker.from_pixels(program, first_pixel(*from, row.row), from->size, key, out);
        });
    }
    if (!row.read.error.empty()) return {Outcome::Kind::read_error, false, std::move(row.read.error)};
    return made_and_kept(maker, job, row.row, row.read.stamp, row.stale,
                         [&](const Program& program, uint8_t* out) {
                             return maker.from_encoded(program, {row.read.buffer.data(), row.read.size}, key,
                                                       out, uncounted(row.read.buffer));
                         });
}

}  // namespace penstock
