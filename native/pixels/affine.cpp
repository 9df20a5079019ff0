// A picture moved by a matrix without interpolation, as Pillow's Image.transform(AFFINE, NEAREST) does it.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "pixels/operations.h"

namespace standpipe {
namespace {

constexpr int64_t kOne = 1 << 16;

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

template <int C>
struct Warp {
    const uint8_t* from;
    Pixels to;
    Colour fill;

    uint8_t* row(int y) const noexcept { return to.data + static_cast<size_t>(y) * to.row_bytes(); }
    const uint8_t* at(int64_t y, int64_t x) const noexcept { return from + C * (y * to.width + x); }

    void colour(uint8_t* pixels, int64_t count) const noexcept {
        if (std::all_of(fill.begin(), fill.begin() + C, [&](uint8_t level) { return level == fill[0]; })) {
            std::memset(pixels, fill[0], static_cast<size_t>(C * count));
            return;
        }
        for (int64_t i = 0; i < count; ++i) std::memcpy(pixels + C * i, fill.data(), C);
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
        uint8_t* pixel = out + C * inside.begin;
        if (step_y == 0 && step_x == kOne) {
            if (count > 0) std::memcpy(pixel, at(from_y >> 16, from_x >> 16), static_cast<size_t>(C * count));
        } else {
            for (int64_t n = 0; n < count; ++n, pixel += C, from_y += step_y, from_x += step_x)
                std::memcpy(pixel, at(from_y >> 16, from_x >> 16), C);
        }
        colour(out + C * inside.end, to.width - inside.end);
    }
};

// Pillow's own way for matrices that only scale and move. It adds up coordinates.
template <int C>
void scaled(std::span<const double> matrix, const Warp<C>& warp) noexcept {
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
            for (int x = 0; x < warp.to.width; ++x, from_x += matrix[0], pixel += C) {
                const bool inside = from_x >= 0 && from_x < warp.to.width;
                std::memcpy(pixel, inside ? warp.at(line, static_cast<int>(from_x)) : warp.fill.data(), C);
            }
        }
    }
}

// Pillow's way for the other matrices of which a corner is far outside. It adds up coordinates too.
template <int C>
void turned_far(std::span<const double> matrix, const Warp<C>& warp) noexcept {
    double line_x = matrix[2] + matrix[0] * 0.5 + matrix[1] * 0.5,
           line_y = matrix[5] + matrix[3] * 0.5 + matrix[4] * 0.5;
    for (int y = 0; y < warp.to.height; ++y, line_x += matrix[1], line_y += matrix[4]) {
        uint8_t* pixel = warp.row(y);
        double from_x = line_x, from_y = line_y;
        for (int x = 0; x < warp.to.width; ++x, from_x += matrix[0], from_y += matrix[3], pixel += C) {
            const bool inside =
                from_x >= 0 && from_x < warp.to.width && from_y >= 0 && from_y < warp.to.height;
            std::memcpy(
                pixel,
                inside ? warp.at(static_cast<int>(from_y), static_cast<int>(from_x)) : warp.fill.data(), C);
        }
    }
}

template <int C>
void turned(std::span<const double> matrix, const Warp<C>& warp) noexcept {
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

void move_nearest(Canvas& canvas, std::span<const double> matrix, const Colour& fill,
                  uint8_t* scratch) noexcept {
    const Pixels pixels = canvas.pixels();
    std::memcpy(scratch, pixels.data, pixels.bytes());
    with_channels(pixels.channels, [&](auto channels) {
        const Warp<channels> warp{scratch, pixels, fill};
        if (matrix[1] == 0 && matrix[3] == 0) scaled(matrix, warp);
        else turned(matrix, warp);
    });
}

namespace {

// Eleven numbers: the matrix (2, 3) from a place in the result to one in the picture, the colour outside, and
// the interpolation.
void move(const PixelStage& stage, Draws&, Canvas& canvas, uint8_t* scratch) noexcept {
    const std::span<const double> numbers(stage.parameters);
    warp(canvas, numbers.first(6), sampling_in(stage, 10), colour_in(stage, 6), scratch);
}

}  // namespace

constinit const PixelKind kAffine{"affine", 11, whole_picture, move, true};

}  // namespace standpipe
