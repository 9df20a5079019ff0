// A part of a file in memory, which moves with what is read. Readers of headers and records share it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace standpipe {

class FileWindow {
  public:
    // Reads `most_bytes` at a time, or more where more is asked for.
    explicit FileWindow(uint64_t most_bytes) noexcept : most_bytes_(most_bytes) {}

    // Begins with a file of `size` bytes.
    void begin(int file, uint64_t size) noexcept;

    // Returns the bytes [at, at + size), or fewer where the file ends or can't be read; none where `at` is
    // behind its end. They stay until the next call.
    std::span<const uint8_t> view(uint64_t at, uint64_t size);

    // The error number of the read that failed; 0 if none did.
    int error() const noexcept { return error_; }

  private:
    const uint64_t most_bytes_;
    int file_ = -1;
    uint64_t size_ = 0;
    std::vector<uint8_t> bytes_;
    uint64_t begin_ = 0, filled_ = 0;  // first byte of the window in the file, and its bytes
    int error_ = 0;
};

}  // namespace standpipe
