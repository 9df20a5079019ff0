#include "pool/cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cache/check.h"

namespace standpipe {

std::optional<CachedRow> Pool::State::look_up(ReadyRow& row) {
    const Job& job = *row.job;
    if (!job.cache->store) return std::nullopt;
    CacheStore& store = *job.cache->store;
    const uint64_t record = job.record(row.turn.row);
    const std::optional<CachedRow> kept = store.find(record);
    const bool fits =
        kept && (!job.keeps_images() || kept->length == job.cache->before->format().row_bytes());
    if (!fits) store.count_miss();
    if (!kept) return std::nullopt;
    row.stale = kept->stamp;  // unless it is found to be right
    if (!fits) return std::nullopt;
    if (job.reads_files(0) && job.cache->checks && !store.checked(record)) {
        Looked now;
        if (!is_as_stored(store, record, *kept, std::string(job.files(0).path(row.turn.row)), &now))
            return std::nullopt;
        row.read.took_s = now.took_s;
        row.read.blocked_s = now.blocked_s;
    }
    return kept;
}

bool Pool::State::read_kept(ReadyRow& row, const CachedRow& kept) {
    CacheStore& store = *row.job->cache->store;
    // What is too large for a buffer, or for all that are left, is so as a file too, which says it.
    if (kept.length <= max_encoded()) row.read.buffer = buffers->lend(std::max<size_t>(kept.length, 1));
    if (!row.read.buffer.data()) {
        store.count_miss();
        return false;
    }
    row.read.size = kept.length;
    return store.read(row.job->record(row.turn.row), kept, row.read.buffer.data());
}

bool Pool::State::find_kept(ReadyRow& row) {
    const std::optional<CachedRow> kept = look_up(row);
    if (!kept) return false;
    const bool into_slot = row.job->keeps_images() && !kept->spilled;
    if (!into_slot && !read_kept(row, *kept)) return false;
    row.kept = kept;
    return true;
}

// A row of what is kept; nothing when that isn't what was stored.
std::optional<Outcome> Pool::State::make_of_kept(RowMaker& maker, ReadyRow& row) {
    Job& job = *row.job;
    uint8_t* const pixels = kept_pixels(maker, job, row.turn.row);
    if (row.read.buffer.data()) std::memcpy(pixels, row.read.buffer.data(), row.kept->length);
    else if (!job.cache->store->read(job.record(row.turn.row), *row.kept, pixels)) return std::nullopt;
    return finished(maker, job, row.turn.row, pixels,
                    {Outcome::Kind::ok, row.kept->damaged, {}, row.kept->truncated});
}

Outcome Pool::State::make_kept(RowMaker& maker, ReadyRow& row) {
    Job& job = *row.job;
    if (!job.reads_files(0)) row.kept = look_up(row);
    if (row.kept) {
        if (auto made = make_of_kept(maker, row)) return std::move(*made);
        row.read = {};
        if (job.reads_files(0)) row.read = read_file(row);
    }
    const Stamp stamp = row.read.stamp;
    return made_and_kept(maker, job, row.turn.row, stamp, row.stale,
                         [&](const Program& program, const RowPlace& out) {
                             return make_of_source(maker, row, program, out);
                         });
}

}  // namespace standpipe
