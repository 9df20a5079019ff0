// Pictures beside each other on a canvas, or blended.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "image/compose.h"
#include "pixels/operations.h"

namespace standpipe {

// A picture on a canvas, of which no more than the canvas has is seen.
struct Placed {
    const uint8_t* pixels;
    Size size;
    int left, top;

    // Returns what is seen in columns [begin, end).
    std::pair<int, int> columns(int begin, int end) const noexcept {
        return {std::max(left, begin), std::min(left + size.width, end)};
    }
};

// Pictures on a canvas, which don't overlap unless they are blended.
struct Arranged {
    std::array<Placed, 4> parts;
    size_t count = 1;
    Size canvas;
    Colour fill{};
    int share = 0;  // of the first of two pictures, in 2^-16; 0: they aren't blended

    bool is_plain() const noexcept {
        const Placed& first = parts.front();
        return count == 1 && first.left == 0 && first.top == 0 && first.size == canvas;
    }
};

// Arranges the pictures that a composition puts together. `sizes`: of the pictures; of the first alone,
// unless the composition takes place.
Arranged arranged(const Composition& how, Draws& draws, std::span<const Size> sizes) noexcept;

// Writes a box of the canvas, row by row.
void assemble(const Arranged& from, const Box& box, uint8_t* out) noexcept;

class ArrangedRows final : public PictureRows {
  public:
    explicit ArrangedRows(const Arranged& from) noexcept
        : PictureRows(from.canvas.height, from.canvas.width), from_(from) {}
    void write(int row, int first, int count, uint8_t* out) const noexcept override {
        assemble(from_, {first, row, count, 1}, out);
    }

  private:
    const Arranged& from_;
};

// Writes a blend of two pictures of `bytes` bytes, of which the first one has `share`.
void blend(const uint8_t* first, const uint8_t* second, int share, size_t bytes, uint8_t* out) noexcept;

}  // namespace standpipe
