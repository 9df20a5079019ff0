// Makes rows in two parts, and stores the result of the first part in a cache.
#pragma once

#include <optional>
#include <utility>

#include "pool/state.h"

namespace standpipe {

// Returns where the first part of a row is written: the slot, if the second part only copies; else scratch.
inline uint8_t* kept_pixels(RowMaker& maker, Job& job, int row) {
    const JobCache& cache = *job.cache;
    return only_copies(*job.program, cache.size()) ? job.place(row).of(0, job.program->format()).first
                                                   : maker.room(cache.before->format().row_bytes());
}

// Makes the second part. `first`: the outcome of the first one.
inline Outcome finished(RowMaker& maker, Job& job, int row, const uint8_t* pixels, Outcome first) {
    const RowPlace out = job.place(row);
    if (pixels == out.of(0, job.program->format()).first) return first;
    Outcome outcome = maker.make(*job.program, 0, job.cache->kept(pixels), {job.key(row), out});
    if (outcome.kind != Outcome::Kind::ok) return outcome;
    return first;
}

// Makes the first part by `make(program, out)`, stores it, and makes the second part. `stale`: the stamp of
// the stored row that it replaces.
template <typename Make>
Outcome made_and_kept(RowMaker& maker, Job& job, int row, const Stamp& stamp,
                      const std::optional<Stamp>& stale, Make make) {
    const JobCache& cache = *job.cache;
    uint8_t* const pixels = kept_pixels(maker, job, row);
    Outcome first = make(*cache.before, pixels);
    if (first.kind != Outcome::Kind::ok) return first;
    job.keep(row, {pixels, cache.before->format().row_bytes()}, stamp, first, stale);
    return finished(maker, job, row, pixels, std::move(first));
}

}  // namespace standpipe
