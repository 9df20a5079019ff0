// A picture moved by a matrix, as Pillow's Image.transform does it, with interpolation in double precision.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>

#include "pixels/operations.h"
#include "system/portable_math.h"

namespace standpipe {
namespace {

template <size_t C>
struct Source {
    const uint8_t* data;
    int height, width;

    bool has(double x, double y) const noexcept { return x >= 0 && x < width && y >= 0 && y < height; }
    const uint8_t* row(int y) const noexcept {
        return data + C * static_cast<size_t>(std::clamp(y, 0, height - 1)) * static_cast<size_t>(width);
    }
    size_t column(int x) const noexcept { return C * static_cast<size_t>(std::clamp(x, 0, width - 1)); }
};

int floored(double value) noexcept { return static_cast<int>(std::floor(value)); }

template <size_t C>
void nearest(const Source<C>& from, double x, double y, uint8_t* out) noexcept {
    std::memcpy(out, from.row(static_cast<int>(y)) + from.column(static_cast<int>(x)), C);
}

template <size_t C>
void bilinear(const Source<C>& from, double x, double y, uint8_t* out) noexcept {
    x -= 0.5;
    y -= 0.5;
    const int left = floored(x), top = floored(y);
    const double dx = x - left, dy = y - top;
    const size_t a = from.column(left), b = from.column(left + 1);
    const uint8_t *const upper = from.row(top), *const lower = from.row(top + 1);
    for (size_t c = 0; c < C; ++c) {
        const double above = upper[a + c] + (upper[b + c] - upper[a + c]) * dx;
        const double below = lower[a + c] + (lower[b + c] - lower[a + c]) * dx;
        out[c] = static_cast<uint8_t>(above + (below - above) * dy);
    }
}

double cubic(double v1, double v2, double v3, double v4, double d) noexcept {
    const double p2 = -v1 + v3, p3 = 2 * (v1 - v2) + v3 - v4, p4 = -v1 + v2 - v3 + v4;
    return v2 + d * (p2 + d * (p3 + d * p4));
}

template <size_t C>
void bicubic(const Source<C>& from, double x, double y, uint8_t* out) noexcept {
    x -= 0.5;
    y -= 0.5;
    const int left = floored(x), top = floored(y);
    const double dx = x - left, dy = y - top;
    size_t columns[4];
    for (int i = 0; i < 4; ++i) columns[i] = from.column(left - 1 + i);
    double across[4][C];
    for (int i = 0; i < 4; ++i) {
        const uint8_t* const row = from.row(top - 1 + i);
        for (size_t c = 0; c < C; ++c)
            across[i][c] =
                cubic(row[columns[0] + c], row[columns[1] + c], row[columns[2] + c], row[columns[3] + c], dx);
    }
    for (size_t c = 0; c < C; ++c) {
        const double value = cubic(across[0][c], across[1][c], across[2][c], across[3][c], dy);
        out[c] = static_cast<uint8_t>(std::clamp(value, 0.0, 255.0));
    }
}

template <size_t C, typename Sample>
void warp_by(Pixels pixels, std::span<const double> m, const Colour& fill, const Source<C>& from,
             Sample sample) noexcept {
    uint8_t* out = pixels.data;
    const bool flat = m.size() < 8;
    for (int y = 0; y < pixels.height; ++y)
        for (int x = 0; x < pixels.width; ++x, out += C) {
            const double px = x + 0.5, py = y + 0.5;
            double from_x = m[0] * px + m[1] * py + m[2], from_y = m[3] * px + m[4] * py + m[5];
            if (!flat) {
                const double depth = m[6] * px + m[7] * py + 1;
                from_x /= depth;
                from_y /= depth;
            }
            if (from.has(from_x, from_y)) sample(from, from_x, from_y, out);
            else std::memcpy(out, fill.data(), C);
        }
}

// The other way round: from a place in the picture to one in the result.
Move inverse(const std::array<double, 8>& m, int height, int width) noexcept {
    const double g = m[6], h = m[7];
    const std::array<double, 9> adjugate{m[4] - m[5] * h,     m[2] * h - m[1],     m[1] * m[5] - m[2] * m[4],
                                         m[5] * g - m[3],     m[0] - m[2] * g,     m[2] * m[3] - m[0] * m[5],
                                         m[3] * h - m[4] * g, m[1] * g - m[0] * h, m[0] * m[4] - m[1] * m[3]};
    const double determinant = m[0] * adjugate[0] + m[1] * adjugate[3] + m[2] * adjugate[6];
    Move move{adjugate, height, width, Move::Kind::warps};
    for (double& each : move.matrix) each = determinant == 0 ? std::nan("") : each / determinant;
    return move;
}

}  // namespace

Sampling sampling_in(const PixelStage& stage, size_t at) noexcept {
    return static_cast<Sampling>(std::clamp(static_cast<int>(stage.parameters[at]), 0, 4));
}

void warp(Canvas& canvas, std::span<const double> matrix, Sampling sampling, const Colour& fill,
          uint8_t* scratch) noexcept {
    if (canvas.moves() || sampling >= Sampling::fixed_nearest) {
        DrawnWarp drawn{{}, canvas.height(), canvas.width(), sampling == Sampling::fixed_bilinear, fill};
        std::ranges::copy(matrix, drawn.matrix.begin());
        return warp_fixed(canvas, drawn, scratch);
    }
    if (sampling == Sampling::nearest && matrix.size() < 8)
        return move_nearest(canvas, matrix, fill, scratch);
    const Pixels pixels = canvas.pixels();
    std::memcpy(scratch, pixels.data, pixels.bytes());
    with_channels(pixels.channels, [&](auto channels) {
        const Source<channels> from{scratch, pixels.height, pixels.width};
        switch (sampling) {
            case Sampling::nearest: return warp_by(pixels, matrix, fill, from, nearest<channels>);
            case Sampling::bilinear: return warp_by(pixels, matrix, fill, from, bilinear<channels>);
            default: return warp_by(pixels, matrix, fill, from, bicubic<channels>);
        }
    });
}

void warp_fixed(Canvas& canvas, const DrawnWarp& warp, uint8_t* scratch) noexcept {
    if (canvas.moves()) {
        canvas.moves()->push_back(inverse(warp.matrix, warp.height, warp.width));
        return canvas.resize(warp.height, warp.width);
    }
    Pixels pixels = canvas.pixels();
    std::memcpy(scratch, pixels.data, pixels.bytes());
    canvas.resize(warp.height, warp.width);
    const Pixels out = canvas.pixels();
    pixels.data = scratch;
    warp_fixed(canvas.kernels(), {pixels, 0, 0, pixels.height, pixels.width}, warp, out);
}

// Pillow takes angles from 0 to 360, and rounds both functions to 15 digits.
AffineMatrix rotation(double degrees, double x, double y) noexcept {
    double angle = std::fmod(degrees, 360.0);
    if (angle < 0) angle += 360.0;
    const auto turn = portable_sine_cosine(-(angle * (3.14159265358979323846 / 180.0)));
    const double cosine = rounded_to_15_digits(turn.cosine), sine = rounded_to_15_digits(turn.sine);
    return {{cosine, sine, cosine * -x + sine * -y + x, -sine, cosine, -sine * -x + cosine * -y + y}};
}

}  // namespace standpipe
