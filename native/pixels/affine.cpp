// A picture moved by a matrix without interpolation, as Pillow's Image.transform(AFFINE, NEAREST) does it.
#include <cmath>
#include <cstring>
#include <span>

#include "pixels/operations.h"

namespace standpipe {
namespace {

// A copy of the picture.
size_t scratch_bytes(const PixelStage&, int height, int width) noexcept {
    return Pixels{nullptr, height, width}.bytes();
}

// Pillow's coordinates in 16.16 bits; a picture has fewer than 2^15 pixels along a side there.
int64_t fixed(double value) noexcept { return static_cast<int64_t>(std::floor(value * 65536.0 + 0.5)); }

int whole(double value) noexcept { return value < 0 ? -1 : static_cast<int>(value); }

struct Warp {
    const uint8_t* from;
    Pixels to;
    uint8_t fill[3];

    void put(int y, int x, int64_t from_y, int64_t from_x) const noexcept {
        const auto width = static_cast<size_t>(to.width);
        const bool inside = from_x >= 0 && from_x < to.width && from_y >= 0 && from_y < to.height;
        const uint8_t* const pixel =
            inside ? from + 3 * (static_cast<size_t>(from_y) * width + static_cast<size_t>(from_x)) : fill;
        std::memcpy(to.rgb + 3 * (static_cast<size_t>(y) * width + static_cast<size_t>(x)), pixel, 3);
    }
};

// Pillow's own way for matrices that only scale and move. It adds up coordinates.
void scaled(std::span<const double> matrix, const Warp& warp) noexcept {
    double from_y = matrix[5] + matrix[4] * 0.5;
    for (int y = 0; y < warp.to.height; ++y, from_y += matrix[4]) {
        double from_x = matrix[2] + matrix[0] * 0.5;
        for (int x = 0; x < warp.to.width; ++x, from_x += matrix[0])
            warp.put(y, x, whole(from_y), whole(from_x));
    }
}

void turned(std::span<const double> matrix, const Warp& warp) noexcept {
    const int64_t xx = fixed(matrix[0]), xy = fixed(matrix[1]), yx = fixed(matrix[3]), yy = fixed(matrix[4]);
    int64_t row_x = fixed(matrix[2] + matrix[0] * 0.5 + matrix[1] * 0.5),
            row_y = fixed(matrix[5] + matrix[3] * 0.5 + matrix[4] * 0.5);
    for (int y = 0; y < warp.to.height; ++y, row_x += xy, row_y += yy) {
        int64_t from_x = row_x, from_y = row_y;
        for (int x = 0; x < warp.to.width; ++x, from_x += xx, from_y += yx)
            warp.put(y, x, from_y >> 16, from_x >> 16);
    }
}

}  // namespace

void move_nearest(Pixels pixels, std::span<const double> matrix, const uint8_t* fill,
                  uint8_t* scratch) noexcept {
    std::memcpy(scratch, pixels.rgb, pixels.bytes());
    const Warp warp{scratch, pixels, {fill[0], fill[1], fill[2]}};
    if (matrix[1] == 0 && matrix[3] == 0) scaled(matrix, warp);
    else turned(matrix, warp);
}

namespace {

// Nine numbers: the matrix (2, 3) from a place in the result to one in the picture, and the colour outside.
void move(const PixelStage& stage, Draws&, Pixels pixels, uint8_t* scratch) noexcept {
    const std::span<const double> numbers(stage.parameters);
    const uint8_t fill[3] = {static_cast<uint8_t>(numbers[6]), static_cast<uint8_t>(numbers[7]),
                             static_cast<uint8_t>(numbers[8])};
    move_nearest(pixels, numbers.first(6), fill, scratch);
}

}  // namespace

extern const PixelKind kAffine;
constinit const PixelKind kAffine{"affine", 9, scratch_bytes, move};

}  // namespace standpipe
