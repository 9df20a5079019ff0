// Identifies a file's version, to tell whether its bytes may have changed since an earlier read.
#pragma once

#include <sys/stat.h>

#include <cstdint>

namespace standpipe {

// Of a file, as fstat saw it when its bytes were read. Zeros: of no file.
//
// Its time of modification is what cp -p, touch -r, rsync -t and archives set as they like. The time at which
// its inode was changed nobody sets: whatever took a file's place shows there, and so does a link that leads
// to another file, but for one that was changed in the same tick. The inode's number isn't compared: file
// systems in user space and of networks may give a file another one at each mount.
struct Stamp {
    int64_t file_bytes = 0, mtime_ns = 0, ctime_ns = 0;
    // It was changed so shortly before it was read that another change might bear the same times.
    bool racy = false;

    bool operator==(const Stamp&) const = default;
    bool same_file(const Stamp& other) const noexcept {
        return file_bytes == other.file_bytes && mtime_ns == other.mtime_ns && ctime_ns == other.ctime_ns;
    }
};

int64_t ns_of(const struct timespec& time) noexcept;

// Of a file that is read from now on, not before.
//
// Racy for two seconds by its time of modification, since a file server has a clock of its own; not by the
// inode's, or what was just unpacked, with its old times, would be read twice. A read waits for the tick of
// the clock that the system has the time of inodes from: what is changed after that bears another one.
Stamp stamp_of(const struct stat& info) noexcept;

}  // namespace standpipe
