#include "cache/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace standpipe {

Descriptor open_regular(int directory, const char* name, int flags) noexcept {
    // Non-blocking, so that opening a FIFO can't wait for a writer.
    Descriptor file(openat(directory, name, flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    struct stat info;
    if (!file || fstat(file.get(), &info) != 0) return Descriptor();
    if (S_ISREG(info.st_mode)) return file;
    errno = EINVAL;
    return Descriptor();
}

int write_at(int file, std::span<const uint8_t> bytes, off_t offset) noexcept {
    while (!bytes.empty()) {
        const ssize_t put = pwrite(file, bytes.data(), bytes.size(), offset);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return errno;
        if (put == 0) return ENOSPC;
        bytes = bytes.subspan(static_cast<size_t>(put));
        offset += put;
    }
    return 0;
}

}  // namespace standpipe
