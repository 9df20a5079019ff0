// Checks whether a file has changed since a row of the cache was made from it.
#pragma once

#include <cstdint>
#include <string>

#include "cache/store.h"
#include "io/reader.h"

namespace standpipe {

// The file of a row is looked at once until the store forgets that. False, and counted, where it has changed,
// or may have. looked: what the system said of it, if it was asked.
inline bool is_as_stored(CacheStore& store, uint64_t record, const CachedRow& row, const std::string& path,
                         Looked* looked = nullptr) {
    if (store.checked(record)) return true;
    const Looked now = look_at(path);
    if (looked) *looked = now;
    if (!now.found || !now.stamp.same_file(row.stamp) || row.stamp.racy) {
        store.count_stale();
        store.count_miss();
        return false;
    }
    store.set_checked(record);
    return true;
}

}  // namespace standpipe
