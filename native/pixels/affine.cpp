// A picture moved by a matrix without interpolation, as Pillow's Image.transform(AFFINE, NEAREST) does it.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "pixels/operations.h"

namespace standpipe {
namespace {

constexpr int64_t kOne = 1 << 16;

// A copy of the picture.
size_t scratch_bytes(const PixelStage&, int height, int width) noexcept {
    return Pixels{nullptr, height, width}.bytes();
}

// Returns whether Pillow calculates with 16.16 bits for the place that becomes (x, y).
bool near(std::span<const double> m, double x, double y) noexcept {
    return std::fabs(x * m[0] + y * m[1] + m[2]) < 32768 && std::fabs(x * m[3] + y * m[4] + m[5]) < 32768;
}

// Pillow's coordinates in 16.16 bits; a picture has fewer than 2^15 pixels along a side there.
int64_t fixed(double value) noexcept { return static_cast<int64_t>(std::floor(value * 65536.0 + 0.5)); }

int whole(double value) noexcept { return value < 0 ? -1 : static_cast<int>(value); }

// The numbers from `begin` up to `end` that stand for places inside.
struct Span {
    int64_t begin, end;

    // Keeps each n for which `start` + n * `step` is in [0, limit).
    void keep(int64_t start, int64_t step, int64_t limit) noexcept {
        if (step < 0) {
            start = limit - 1 - start;
            step = -step;
        }
        const auto first_from = [&](int64_t level) {
            if (start >= level) return int64_t{0};
            return step == 0 ? end : (level - start + step - 1) / step;
        };
        const int64_t low = first_from(0), high = first_from(limit);
        end = std::min(end, high);
        begin = std::min(end, std::max(begin, low));
    }
};

struct Warp {
    const uint8_t* from;
    Pixels to;
    uint8_t fill[3];

    uint8_t* row(int y) const noexcept {
        return to.rgb + size_t{3} * static_cast<size_t>(y) * static_cast<size_t>(to.width);
    }
    const uint8_t* at(int64_t y, int64_t x) const noexcept { return from + 3 * (y * to.width + x); }

    void colour(uint8_t* pixels, int64_t count) const noexcept {
        if (fill[0] == fill[1] && fill[1] == fill[2]) {
            std::memset(pixels, fill[0], static_cast<size_t>(3 * count));
            return;
        }
        for (int64_t i = 0; i < count; ++i) std::memcpy(pixels + 3 * i, fill, 3);
    }

    // Makes a row of the pixels at (from_y, from_x) + n * (step_y, step_x), in 16.16 bits.
    void make_row(int y, int64_t from_y, int64_t from_x, int64_t step_y, int64_t step_x) const noexcept {
        Span inside{0, to.width};
        inside.keep(from_y, step_y, to.height * kOne);
        inside.keep(from_x, step_x, to.width * kOne);
        uint8_t* const out = row(y);
        colour(out, inside.begin);
        const int64_t count = inside.end - inside.begin;
        from_y += inside.begin * step_y;
        from_x += inside.begin * step_x;
        uint8_t* pixel = out + 3 * inside.begin;
        if (step_y == 0 && step_x == kOne) {
            if (count > 0) std::memcpy(pixel, at(from_y >> 16, from_x >> 16), static_cast<size_t>(3 * count));
        } else {
            for (int64_t n = 0; n < count; ++n, pixel += 3, from_y += step_y, from_x += step_x)
                std::memcpy(pixel, at(from_y >> 16, from_x >> 16), 3);
        }
        colour(out + 3 * inside.end, to.width - inside.end);
    }
};

// Pillow's own way for matrices that only scale and move. It adds up coordinates.
void scaled(std::span<const double> matrix, const Warp& warp) noexcept {
    const bool moves = matrix[0] == 1 && matrix[2] == std::floor(matrix[2]) && std::abs(matrix[2]) < 1 << 24;
    double from_y = matrix[5] + matrix[4] * 0.5;
    for (int y = 0; y < warp.to.height; ++y, from_y += matrix[4]) {
        const int line = from_y < warp.to.height ? whole(from_y) : -1;
        double from_x = matrix[2] + matrix[0] * 0.5;
        if (line < 0) {
            warp.colour(warp.row(y), warp.to.width);
        } else if (moves) {
            warp.make_row(y, line * kOne, static_cast<int64_t>(matrix[2]) * kOne, 0, kOne);
        } else {
            uint8_t* pixel = warp.row(y);
            for (int x = 0; x < warp.to.width; ++x, from_x += matrix[0], pixel += 3) {
                const bool inside = from_x >= 0 && from_x < warp.to.width;
                std::memcpy(pixel, inside ? warp.at(line, static_cast<int>(from_x)) : warp.fill, 3);
            }
        }
    }
}

// Pillow's way for the other matrices of which a corner is far outside. It adds up coordinates too.
void turned_far(std::span<const double> matrix, const Warp& warp) noexcept {
    double line_x = matrix[2] + matrix[0] * 0.5 + matrix[1] * 0.5,
           line_y = matrix[5] + matrix[3] * 0.5 + matrix[4] * 0.5;
    for (int y = 0; y < warp.to.height; ++y, line_x += matrix[1], line_y += matrix[4]) {
        uint8_t* pixel = warp.row(y);
        double from_x = line_x, from_y = line_y;
        for (int x = 0; x < warp.to.width; ++x, from_x += matrix[0], from_y += matrix[3], pixel += 3) {
            const bool inside =
                from_x >= 0 && from_x < warp.to.width && from_y >= 0 && from_y < warp.to.height;
            std::memcpy(pixel,
                        inside ? warp.at(static_cast<int>(from_y), static_cast<int>(from_x)) : warp.fill, 3);
        }
    }
}

void turned(std::span<const double> matrix, const Warp& warp) noexcept {
    const double width = warp.to.width, height = warp.to.height;
    if (!near(matrix, 0, 0) || !near(matrix, width, 0) || !near(matrix, 0, height) ||
        !near(matrix, width, height))
        return turned_far(matrix, warp);
    const int64_t xx = fixed(matrix[0]), xy = fixed(matrix[1]), yx = fixed(matrix[3]), yy = fixed(matrix[4]);
    int64_t row_x = fixed(matrix[2] + matrix[0] * 0.5 + matrix[1] * 0.5),
            row_y = fixed(matrix[5] + matrix[3] * 0.5 + matrix[4] * 0.5);
    for (int y = 0; y < warp.to.height; ++y, row_x += xy, row_y += yy) warp.make_row(y, row_y, row_x, yx, xx);
}

}  // namespace

void move_nearest(Canvas& canvas, std::span<const double> matrix, const uint8_t* fill,
                  uint8_t* scratch) noexcept {
    const Pixels pixels = canvas.pixels();
    std::memcpy(scratch, pixels.rgb, pixels.bytes());
    const Warp warp{scratch, pixels, {fill[0], fill[1], fill[2]}};
    if (matrix[1] == 0 && matrix[3] == 0) scaled(matrix, warp);
    else turned(matrix, warp);
}

namespace {

// Ten numbers: the matrix (2, 3) from a place in the result to one in the picture, the colour outside, and
// the interpolation.
void move(const PixelStage& stage, Draws&, Canvas& canvas, uint8_t* scratch) noexcept {
    const std::span<const double> numbers(stage.parameters);
    const uint8_t fill[3] = {static_cast<uint8_t>(numbers[6]), static_cast<uint8_t>(numbers[7]),
                             static_cast<uint8_t>(numbers[8])};
    const auto sampling = static_cast<Sampling>(std::clamp(static_cast<int>(numbers[9]), 0, 2));
    warp(canvas, numbers.first(6), sampling, fill, scratch);
}

}  // namespace

extern const PixelKind kAffine;
constinit const PixelKind kAffine{"affine", 10, scratch_bytes, move, true};

}  // namespace standpipe
