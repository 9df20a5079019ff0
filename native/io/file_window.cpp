#include "io/file_window.h"

#include <algorithm>
#include <cerrno>

#include "system/descriptor.h"

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
        const ssize_t got = read_at(file_, std::span(bytes_).first(wanted), static_cast<off_t>(at));
        if (got < 0) error_ = errno;
        begin_ = at;
        filled_ = static_cast<uint64_t>(std::max<ssize_t>(got, 0));  // fewer: it was shortened
    }
    return {bytes_.data() + (at - begin_), std::min(size, filled_ - (at - begin_))};
}

}  // namespace standpipe
