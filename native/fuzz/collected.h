// Collects the decoded rows of a picture, which is `width` pixels wide.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "image/jpeg.h"

namespace standpipe {

class Collected final : public PixelSink {
  public:
    explicit Collected(int width, int channels = 3) : row_bytes_(static_cast<size_t>(width * channels)) {}
    void pixels(const uint8_t* const* rows, int count) noexcept override {
        for (int i = 0; i < count; ++i) bytes.insert(bytes.end(), rows[i], rows[i] + row_bytes_);
    }
    void restart() noexcept override { bytes.clear(); }

    std::vector<uint8_t> bytes;

  private:
    size_t row_bytes_;
};

}  // namespace standpipe
