// Owns a file descriptor, and closes it when the owner is destroyed.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <utility>

namespace standpipe {

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

}  // namespace standpipe
