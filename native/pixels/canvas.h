// A picture while stages change it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "pixels/tables.h"
#include "simd/kernels.h"

namespace standpipe {

// A picture in memory: (height, width, channels) bytes, rows packed.
struct Pixels {
    uint8_t* data = nullptr;
    int height = 0, width = 0, channels = 3;
    bool is_mask = false;  // class numbers: stages may move them, and change no value

    size_t row_bytes() const noexcept { return static_cast<size_t>(channels) * static_cast<size_t>(width); }
    size_t bytes() const noexcept { return static_cast<size_t>(height) * row_bytes(); }
};

// One step of a picture's pixels to other places.
struct Move {
    // Three rows: from a place in the picture to one in the result, in pixels from the upper left corner,
    // where a pixel's centre is half a pixel further. NaN: all places become one.
    std::array<double, 9> matrix;
    int height = 0, width = 0;  // of the result
    // drops: boxes whose centre isn't in the result become empty. warps: the matrix is a warp's.
    enum class Kind : uint8_t { plain, drops, warps } kind = Kind::plain;
};

// Tables of bytes that follow one another are one table for each channel. They wait until a stage needs the
// pixels, or until something else reads the picture through them.
class Canvas {
  public:
    Canvas(const Kernels& kernels, Pixels pixels) noexcept : kernels_(kernels), pixels_(pixels) {}
    // A picture without pixels: stages add the moves that they would make.
    Canvas(const Kernels& kernels, int height, int width, std::vector<Move>& moves) noexcept
        : kernels_(kernels), pixels_{nullptr, height, width, 1, true}, moves_(&moves) {}

    const Kernels& kernels() const noexcept { return kernels_; }
    int height() const noexcept { return pixels_.height; }
    int width() const noexcept { return pixels_.width; }
    bool is_mask() const noexcept { return pixels_.is_mask; }
    bool has_colours() const noexcept { return pixels_.channels == 3; }
    std::vector<Move>* moves() const noexcept { return moves_; }  // null: there are pixels

    // The picture without the changes that wait.
    const Pixels& form() const noexcept { return pixels_; }

    // The picture with all changes.
    Pixels pixels() noexcept;

    // The tables between the picture in memory and the one with all changes; null: they are the same.
    const ByteTables* waiting() const noexcept { return waits_ ? &waiting_ : nullptr; }

    // Replaces each byte by its entry in the table of its channel.
    void look_up(const ByteTables& tables) noexcept;
    void look_up(const ByteTable& table) noexcept;

    // Counts the pixels of each value, by channel.
    Histograms histograms() const noexcept;

    // Returns the sum over all pixels: of the first channel, where they have no colours.
    uint64_t sum_of_greys() const noexcept;

    // Makes grey levels of colours: one channel.
    void to_grey() noexcept;

    // Gives the picture another size. Its pixels are in memory already, and no change waits.
    void resize(int height, int width) noexcept {
        pixels_.height = height;
        pixels_.width = width;
    }

  private:
    const Kernels& kernels_;
    Pixels pixels_;
    std::vector<Move>* moves_ = nullptr;
    bool waits_ = false;
    ByteTables waiting_;
};

}  // namespace standpipe
