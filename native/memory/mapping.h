// Maps memory that another process shares through a file.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace standpipe {

// Bytes that there are of something.
using ByteCount = std::atomic<uint64_t>;

// The first `bytes` bytes of a file, mapped until this ends. The file may be closed before.
class Mapping {
  public:
    // count: where they count as long as they are mapped, or null. Throws std::system_error when there is no
    // room, or the file is shorter.
    Mapping(int file, size_t bytes, std::shared_ptr<ByteCount> count);
    ~Mapping();
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;

    uint8_t* data() const noexcept { return data_; }

  private:
    uint8_t* data_;
    size_t bytes_;
    std::shared_ptr<ByteCount> count_;
};

}  // namespace standpipe
