// Shapes of objects as rings of points: what runs of pixels become, where moves take them, and their pixels.
//
// A shape has any number of rings, and is filled where they wind around a place (the rule "non-zero"). Its
// points are x and y, one after another, in pixels from the upper left corner. A point that isn't a number
// ends each ring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace standpipe {

// The lengths of runs of pixels that COCO has as text; nothing for other text.
std::optional<std::vector<int64_t>> run_lengths(std::string_view text);

// The outline of pixels in runs that go down the columns, outside and inside by turns: rings between the
// pixels. Nothing unless they have height · width pixels.
std::optional<std::vector<float>> outline(std::span<const int64_t> runs, int64_t height, int64_t width);

// Turns rings around that wind the other way than the first rings of `outline`.
void turn_alike(std::span<float> points) noexcept;

// Shapes one after another: shape i has the points from ends[i − 1], or 0, to ends[i].
struct Shapes {
    std::span<const float> points;
    std::span<const int64_t> ends;
};

struct MovedShapes {
    std::vector<float> points;
    std::vector<int64_t> ends;
    std::vector<float> hulls;  // left, top, right and bottom of each shape; zeros for one without points
};

// Moves each shape by the moves of its row, one after another. With `cut`, shapes are cut off at the edges of
// each move's result.
MovedShapes moved(Shapes shapes, std::span<const int64_t> rows, std::span<const double> moves,
                  size_t moves_each, bool cut);

// The pixels of a row from `begin` to `end`.
struct Span {
    int64_t row, begin, end;
};

// Returns the pixels whose centres are inside of shape i, in a picture of this size.
std::vector<Span> pixels_of(Shapes shapes, size_t i, int64_t height, int64_t width);

// Returns left, top, right and bottom of what shapes above leave of each shape's pixels; infinite sides where
// they take none, and left beyond right where they take all.
//
// layers  twice the number of the shape's picture, and 1 more for a shape above the others; they rise
// sizes   height and width of the shape's picture
std::vector<float> left_over(Shapes shapes, std::span<const int64_t> layers, std::span<const int64_t> sizes);

// Pictures of masks, one after another.
template <typename Value>
struct Masks {
    std::span<Value> values;
    size_t height, width;
};

// Writes zeros, and values[i] to picture pictures[i] where the centre of a pixel is inside of shape i. Shapes
// of one picture come one after another; a smaller one is drawn over a larger one of its layer, and higher
// layers are drawn over lower ones. `ratio`: pixels of a shape's places in each pixel of a picture.
template <typename Value>
void draw(Shapes shapes, std::span<const int64_t> pictures, std::span<const int64_t> values,
          std::span<const int64_t> layers, double ratio, Masks<Value> out);

}  // namespace standpipe
