// What tells whether a file is the one whose bytes were taken before.
#pragma once

#include <sys/stat.h>

#include <cstdint>

namespace penstock {

// Of a file, as fstat saw it when its bytes were read. Zeros: of no file.
struct Stamp {
    int64_t file_bytes = 0, mtime_ns = 0;
    // It was modified so shortly before it was read that another change might bear the same time.
    bool racy = false;

    bool operator==(const Stamp&) const = default;
    bool same_file(const Stamp& other) const noexcept {
        return file_bytes == other.file_bytes && mtime_ns == other.mtime_ns;
    }
};

// When a file was changed last, in ns.
int64_t mtime_ns_of(const struct stat& info) noexcept;

// Of a file that is read now.
Stamp stamp_of(const struct stat& info) noexcept;

}  // namespace penstock
