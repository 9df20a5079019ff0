#include "io/file_window.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace standpipe {

void FileWindow::begin(int file, uint64_t size) noexcept {
    file_ = file;
    size_ = size;
    filled_ = 0;
    error_ = 0;
}

std::span<const uint8_t> FileWindow::view(uint64_t at, uint64_t size) {
    if (at >= size_) return {};
    size = std::min(size, size_ - at);
    if (at < begin_ || at + size > begin_ + filled_) {
        const uint64_t wanted = std::min(std::max(size, most_bytes_), size_ - at);
        if (bytes_.size() < wanted) bytes_.resize(wanted);
        filled_ = 0;
        begin_ = at;
        while (filled_ < wanted) {
            const ssize_t got =
                pread(file_, bytes_.data() + filled_, wanted - filled_, static_cast<off_t>(at + filled_));
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) error_ = errno;
            if (got <= 0) break;  // 0: it was shortened after it was opened
            filled_ += static_cast<uint64_t>(got);
        }
    }
    return {bytes_.data() + (at - begin_), std::min(size, filled_ - (at - begin_))};
}

}  // namespace standpipe
