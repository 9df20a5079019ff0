// Rows that are made in two parts, of which the first one's result is kept.
#pragma once

#include <optional>
#include <utility>

#include "pool/state.h"

namespace standpipe {

// Where the first part of a row goes: into the slot, where the second one only copies.
inline uint8_t* kept_pixels(RowMaker& maker, Job& job, int row) {
    const JobCache& cache = *job.cache;
    return only_copies(*job.program, cache.size()) ? job.place(row).of(0)
                                                   : maker.room(cache.before->format().row_bytes());
}

// The second part. `first`: what became of the first one.
inline Outcome finished(RowMaker& maker, Job& job, int row, const uint8_t* pixels, Outcome first) {
    const RowPlace out = job.place(row);
    if (pixels == out.of(0)) return first;
    Outcome outcome = maker.from_pixels(*job.program, pixels, job.cache->size(), job.key(row), out);
    if (outcome.kind != Outcome::Kind::ok) return outcome;
    return first;
}

// Has `make(program, out)` make the first part, keeps it, and goes on. `stale`: of what it takes the place
// of.
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
