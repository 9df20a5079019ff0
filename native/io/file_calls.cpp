#include "io/file_calls.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "io/stamp.h"
#include "system/descriptor.h"
#include "system/faults.h"

namespace standpipe {
namespace {

// Returns how far the clock that stamps inodes is behind. It ticks every few milliseconds, or later on a
// virtual machine that wasn't run for a while.
int64_t lag_of_inode_clock_ns() noexcept {
    struct timespec coarse, now;
    clock_gettime(CLOCK_REALTIME_COARSE, &coarse);
    clock_gettime(CLOCK_REALTIME, &now);
    return ns_of(now) - ns_of(coarse);
}

}  // namespace

FileCalls::FileCalls(const std::string& path, int attempt)
    : path_(path), attempt_(attempt), key_(has_faults() ? fault_key(path) : 0) {}

int FileCalls::open() const noexcept {
    const Fault fault = faultpoint(Point::read_open, key_, attempt_);
    errno = fault.error;
    // Non-blocking, so that opening a FIFO can't wait for a writer, and no terminal becomes the process's:
    // both mean nothing for regular files.
    return fault.error ? -1 : ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

int FileCalls::examine(int file, struct stat& info) const noexcept {
    const Fault fault = faultpoint(Point::read_stat, key_, attempt_);
    errno = fault.error;
    return fault.error ? -1 : fstat(file, &info);
}

ssize_t FileCalls::read(int file, std::span<uint8_t> out, int64_t offset) const noexcept {
    const Fault fault = faultpoint(Point::read_pread, key_, attempt_);
    errno = fault.error;
    if (fault.error) return -1;
    return fault.cut ? 0 : read_at(file, out, offset);
}

bool FileCalls::read_pieces(int file, std::span<const struct iovec> pieces, int64_t offset) const noexcept {
    const Fault fault = faultpoint(Point::read_pread, key_, attempt_);
    if (fault.error || fault.cut) return false;
    size_t wanted = 0;
    for (const struct iovec& piece : pieces) wanted += piece.iov_len;
    const ssize_t got = preadv(file, pieces.data(), static_cast<int>(pieces.size()), offset);
    return got >= 0 && static_cast<size_t>(got) == wanted;
}

void FileCalls::harm(std::span<uint8_t> bytes) const noexcept {
    if (faultpoint(Point::read_bytes, key_, attempt_).damage) damage(bytes);
}

// Memory of the trainer, to which a fetch process writes other records while some are read.
static bool has_no_name(const struct stat& info) noexcept { return info.st_nlink == 0; }

bool is_unchanged(const struct stat& before, const struct stat& after) noexcept {
    if (has_no_name(before)) return true;
    return before.st_ino == after.st_ino && before.st_size == after.st_size &&
           ns_of(before.st_mtim) == ns_of(after.st_mtim);
}

bool same_inode_time(const struct stat& before, const struct stat& after) noexcept {
    return has_no_name(before) || ns_of(before.st_ctim) == ns_of(after.st_ctim);
}

int64_t age_ns(const struct stat& info) noexcept {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t youngest_ns = INT64_MAX;
    for (const struct timespec& time : {info.st_mtim, info.st_ctim})
        if (const int64_t ns = ns_of(now) - ns_of(time); ns >= 0) youngest_ns = std::min(youngest_ns, ns);
    return youngest_ns;
}

int64_t left_to_settle_ns(int file, const struct stat& info) noexcept {
    if (has_no_name(info)) return 0;
    const int64_t age = age_ns(info);
    if (!S_ISREG(info.st_mode) || age >= kRacy_ns) return 0;
    if (age <= lag_of_inode_clock_ns()) {
        struct timespec tick;
        clock_getres(CLOCK_REALTIME_COARSE, &tick);
        return ns_of(tick);
    }
    // A write takes its time first and copies its bytes then, and may be stopped between. Where local file
    // systems look for data, they wait for a write that goes on.
    lseek(file, 0, SEEK_DATA);
    return 0;
}

}  // namespace standpipe
