// A picture while stages change it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "pixels/tables.h"
#include "simd/kernels.h"

namespace standpipe {

// A picture in memory: (height, width, 3) bytes, rows packed.
struct Pixels {
    uint8_t* rgb = nullptr;
    int height = 0, width = 0;
    bool is_mask = false;  // class numbers, each three times: stages may move them, and change no value

    size_t bytes() const noexcept {
        return size_t{3} * static_cast<size_t>(height) * static_cast<size_t>(width);
    }
};

// Tables of bytes that follow one another are one table for each channel. They wait until a stage needs the
// pixels, or until something else reads the picture through them.
class Canvas {
  public:
    Canvas(const Kernels& kernels, Pixels pixels) noexcept : kernels_(kernels), pixels_(pixels) {}

    const Kernels& kernels() const noexcept { return kernels_; }
    int height() const noexcept { return pixels_.height; }
    int width() const noexcept { return pixels_.width; }
    bool is_mask() const noexcept { return pixels_.is_mask; }

    // The picture with all changes.
    Pixels pixels() noexcept;

    // The tables between the picture in memory and the one with all changes; null: they are the same.
    const ByteTables* waiting() const noexcept { return waits_ ? &waiting_ : nullptr; }

    // Replaces each byte by its entry in the table of its channel.
    void look_up(const ByteTables& tables) noexcept;
    void look_up(const ByteTable& table) noexcept;

    // Counts the pixels of each value, by channel.
    std::array<Histogram, 3> histograms() const noexcept;

    // Returns the sum over all pixels.
    uint64_t sum_of_greys() const noexcept;

  private:
    const Kernels& kernels_;
    Pixels pixels_;
    bool waits_ = false;
    ByteTables waiting_;
};

}  // namespace standpipe
