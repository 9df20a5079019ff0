// A picture moved by a matrix in fixed point, as OpenCV up to 4.14 does it (its remap still does).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "pixels/operations.h"

namespace standpipe {
namespace {

constexpr int kBlock = 256;          // columns whose places are made together
constexpr int kSumBits = 10;         // after the point, of the two parts of an affine place
constexpr double kMostPx = 1 << 20;  // places further away are outside all the same

using Matrix = std::array<double, 9>;

// OpenCV's places are those of a pixel's centre, Pillow's those of its upper left corner.
Matrix between_centres(std::span<const double> m) noexcept {
    const bool flat = m.size() < 8;
    Matrix to{m[0], m[1], m[2], m[3], m[4], m[5], flat ? 0 : m[6], flat ? 0 : m[7], 1};
    for (size_t row = 0; row < 9; row += 3) to[row + 2] += 0.5 * (to[row] + to[row + 1]);
    for (size_t i = 0; i < 6; ++i) to[i] -= 0.5 * to[6 + i % 3];
    return to;
}

// The nearest integer, a tie's even one, of a number below 2^51.
double rounded(double x) noexcept { return (x + 0x1.8p52) - 0x1.8p52; }

bool is_near(const Matrix& m, double width, double height) noexcept {
    if (m[6] != 0 || m[7] != 0) return false;
    for (const size_t row : {0, 3})
        if (!(std::fabs(m[row]) * width < kMostPx / 2 &&
              std::fabs(m[row + 1]) * height + std::fabs(m[row + 2]) < kMostPx / 2))
            return false;
    return true;
}

struct Block {
    int first, count;  // columns
    int32_t x[kBlock], y[kBlock];
};

// Affine places: the sum of a column's part and a row's, each rounded.
struct Sums {
    const Matrix& matrix;
    int bits;  // of places, after the point
    int32_t across[kBlock], down[kBlock];

    void begin(const Block& block) noexcept {
        for (int i = 0; i < block.count; ++i) {
            const double x = block.first + i;
            across[i] = static_cast<int32_t>(rounded(matrix[0] * x * (1 << kSumBits)));
            down[i] = static_cast<int32_t>(rounded(matrix[3] * x * (1 << kSumBits)));
        }
    }
    void place(int row, Block& block) const noexcept {
        const int shift = kSumBits - bits;
        const auto start = [&](size_t at) {
            const double sum = (matrix[at + 1] * row + matrix[at + 2]) * (1 << kSumBits);
            return static_cast<int32_t>(rounded(sum)) + (1 << shift) / 2;
        };
        const int32_t x = start(0), y = start(3);
        for (int i = 0; i < block.count; ++i) {
            block.x[i] = (x + across[i]) >> shift;
            block.y[i] = (y + down[i]) >> shift;
        }
    }
};

// Places in perspective, and those of matrices that go far. What is at no place is outside.
struct Quotients {
    const Matrix& matrix;
    int bits;

    void begin(const Block&) noexcept {}
    void place(int row, Block& block) const noexcept {
        const auto& m = matrix;
        const double most = kMostPx * 32, one = 1 << bits;
        const auto part = [&](size_t at) { return m[at + 1] * row + m[at + 2]; };
        const double x0 = part(0), y0 = part(3), depth0 = part(6);
        const auto limited = [&](double value) {
            value = value > -most ? value : -most;
            return static_cast<int32_t>(rounded(value < most ? value : most));
        };
        for (int i = 0; i < block.count; ++i) {
            const double x = block.first + i, scale = one / (depth0 + m[6] * x);
            block.x[i] = limited((x0 + m[0] * x) * scale);
            block.y[i] = limited((y0 + m[3] * x) * scale);
        }
    }
};

template <typename Sample, typename Places>
void fill_blocks(Pixels pixels, Places places, Sample sample) noexcept {
    Block block;
    for (block.first = 0; block.first < pixels.width; block.first += kBlock) {
        block.count = std::min(kBlock, pixels.width - block.first);
        places.begin(block);
        uint8_t* out = pixels.data + static_cast<size_t>(block.first) * static_cast<size_t>(pixels.channels);
        for (int row = 0; row < pixels.height; ++row, out += pixels.row_bytes()) {
            places.place(row, block);
            sample(block, out);
        }
    }
}

template <size_t C>
void take_nearest(const WarpSource& from, const Block& block, uint8_t* out) noexcept {
    for (int i = 0; i < block.count; ++i, out += C) {
        const int32_t x = block.x[i], y = block.y[i];
        const bool inside = x >= 0 && x < from.width && y >= 0 && y < from.height;
        const size_t place =
            static_cast<size_t>(y) * static_cast<size_t>(from.width) + static_cast<size_t>(x);
        std::memcpy(out, inside ? from.pixels + C * place : from.fill, C);
    }
}

}  // namespace

void warp_fixed(Canvas& canvas, std::span<const double> numbers, bool interpolates, const Colour& fill,
                uint8_t* scratch) noexcept {
    const Pixels pixels = canvas.pixels();
    std::memcpy(scratch, pixels.data, pixels.bytes());
    const WarpSource from{scratch, pixels.height, pixels.width, pixels.channels, fill.data()};
    const Matrix matrix = between_centres(numbers);
    const int bits = interpolates ? kPlaceBits : 0;
    const auto warp_by = [&](auto sample) {
        if (is_near(matrix, pixels.width, pixels.height))
            fill_blocks(pixels, Sums{matrix, bits, {}, {}}, sample);
        else fill_blocks(pixels, Quotients{matrix, bits}, sample);
    };
    if (interpolates)
        return warp_by([&](const Block& block, uint8_t* out) {
            canvas.kernels().interpolate(from, block.x, block.y, block.count, out);
        });
    with_channels(pixels.channels, [&](auto channels) {
        warp_by([&](const Block& block, uint8_t* out) { take_nearest<channels>(from, block, out); });
    });
}

}  // namespace standpipe
