// Decoded parts of pictures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "image/jpeg.h"
#include "system/keys.h"

namespace standpipe {

// A part of a picture of that size, now and then all of it.
inline Region any_region(Size size, Draws& draws) noexcept {
    if (draws.below(4) == 0) return {0, 0, size.width, size.height};
    const auto x = static_cast<int>(draws.below(static_cast<uint64_t>(size.width))),
               y = static_cast<int>(draws.below(static_cast<uint64_t>(size.height)));
    return {x, y, x + 1 + static_cast<int>(draws.below(static_cast<uint64_t>(size.width - x))),
            y + 1 + static_cast<int>(draws.below(static_cast<uint64_t>(size.height - y)))};
}

// Collects the rows of a picture, which is `width` pixels wide.
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
