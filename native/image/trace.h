// The moves of a picture's pixels on their way to a row, without the pixels.
#pragma once

#include <span>
#include <vector>

#include "image/rows.h"

namespace standpipe {

// Numbers of a move as Python has it: a matrix of three rows, height and width of the result, whether it
// drops boxes.
inline constexpr size_t kMoveNumbers = 12;

// Sets `moves` to what the geometric transforms of a head do to a picture of `source`, in order. A
// result of 0 × 0 pixels, if it can't be made into a row. Crops by boxes are those that the key has.
void trace(const Program& program, size_t head, Size source, const SampleKey& key, std::vector<Move>& moves);

// Draws the crops by boxes as well, and sets those of the head in `windows`, four numbers for each of the
// program's. `boxes`: of the picture; they become those in front of the last of these crops.
void trace(const Program& program, size_t head, Size source, const SampleKey& key, std::vector<Move>& moves,
           std::span<Edges> boxes, std::span<int32_t> windows);

// Sets a box to where a move takes it, as numbers have it: the hull of its corners. `cut`: inside the move's
// result. NaN, if all places became one.
void move_box(std::span<const double, kMoveNumbers> move, bool cut, Edges& box) noexcept;

// Sets boxes to where a move takes them: the hull of their corners, inside its result.
void move_boxes(const Move& move, std::span<Edges> boxes) noexcept;

}  // namespace standpipe
