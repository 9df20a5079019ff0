// File descriptors that have an owner, and reads of all bytes.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <span>
#include <utility>

namespace standpipe {

// Owns a file descriptor, and closes it when the owner is destroyed.
class Descriptor {
  public:
    explicit Descriptor(int fd = -1) noexcept : fd_(fd) {}
    Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~Descriptor() {
        if (fd_ >= 0) ::close(fd_);
    }

    // Returns another descriptor of the same open file; -1, and errno, if the process can have no more.
    static Descriptor copy_of(int fd) noexcept { return Descriptor(fcntl(fd, F_DUPFD_CLOEXEC, 3)); }

    int get() const noexcept { return fd_; }
    explicit operator bool() const noexcept { return fd_ >= 0; }

  private:
    int fd_;
};

// Reads up to all of `out`. Returns the number of bytes, or -1 and errno.
inline ssize_t read_at(int file, std::span<uint8_t> out, off_t offset) noexcept {
    size_t done = 0;
    while (done < out.size()) {
        const ssize_t got =
            pread(file, out.data() + done, out.size() - done, offset + static_cast<off_t>(done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (got == 0) break;
        done += static_cast<size_t>(got);
    }
    return static_cast<ssize_t>(done);
}

}  // namespace standpipe
