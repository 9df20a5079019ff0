// Memory that another process has handed over in a file.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock {

// The first `bytes` bytes of a file, mapped until this ends. The file may be closed before.
class Mapping {
  public:
    // Throws std::system_error when there is no room, or the file is shorter.
    Mapping(int file, size_t bytes);
    ~Mapping();
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;

    uint8_t* data() const noexcept { return data_; }

  private:
    uint8_t* data_;
    size_t bytes_;
};

}  // namespace penstock
