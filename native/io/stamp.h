// Identifies a file's version, to tell whether its bytes may have changed since an earlier read.
#pragma once

#include <sys/stat.h>

#include <cstdint>

namespace standpipe {

// The version of a file, as fstat saw it when its bytes were read. All zeros: no file.
//
// The time of modification can be set by anybody, as cp -p, touch -r, rsync -t and archives do. The time at
// which the inode was changed can't be set. It shows when another file took a file's place, or a link leads
// to another one, except if that one was changed in the same tick. The inode's number isn't compared: file
// systems in user space and network file systems may change it at each mount.
struct Stamp {
    int64_t file_bytes = 0, mtime_ns = 0, ctime_ns = 0;
    // True if the file was changed so shortly before it was read that a later change may have the same times.
    bool racy = false;

    bool operator==(const Stamp&) const = default;
    bool same_file(const Stamp& other) const noexcept {
        return file_bytes == other.file_bytes && mtime_ns == other.mtime_ns && ctime_ns == other.ctime_ns;
    }
};

int64_t ns_of(const struct timespec& time) noexcept;

// Returns the stamp of a file that is read after this call, not before.
//
// A file is racy for two seconds after its time of modification, since a file server has its own clock. The
// inode's time doesn't count, or files that were just unpacked with their old times would be read twice. A
// read waits for the next tick of the clock that stamps inodes: later changes then have another time.
Stamp stamp_of(const struct stat& info) noexcept;

}  // namespace standpipe
