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
Matrix between_centres(const std::array<double, 8>& m) noexcept {
    Matrix to{m[0], m[1], m[2], m[3], m[4], m[5], m[6], m[7], 1};
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

// Places in the part of the picture that is in memory, with `bits` after the point.
struct Rule {
    const Matrix& matrix;
    int bits;
    int32_t left, top;  // the part's, in the picture
};

// Affine places: the sum of a column's part and a row's, each rounded.
struct Sums : Rule {
    int32_t across[kBlock], down[kBlock];

    void begin(const Block& block) noexcept {
        for (int i = 0; i < block.count; ++i) {
            const double x = block.first + i;
            across[i] = static_cast<int32_t>(rounded(matrix[0] * x * (1 << kSumBits)));
            down[i] = static_cast<int32_t>(rounded(matrix[3] * x * (1 << kSumBits)));
        }
    }
    // `at`: 0 for x, 3 for y.
    int32_t start(size_t at, int row) const noexcept {
        const double sum = (matrix[at + 1] * row + matrix[at + 2]) * (1 << kSumBits);
        return static_cast<int32_t>(rounded(sum)) + (1 << (kSumBits - bits)) / 2;
    }
    void place(int row, Block& block) const noexcept {
        const int shift = kSumBits - bits;
        const int32_t x = start(0, row), y = start(3, row);
        for (int i = 0; i < block.count; ++i) {
            block.x[i] = ((x + across[i]) >> shift) - left;
            block.y[i] = ((y + down[i]) >> shift) - top;
        }
    }
};

// Places in perspective, and those of matrices that go far. What is at no place is outside.
struct Quotients : Rule {
    const Kernels& kernels;

    void begin(const Block&) noexcept {}
    void place(int row, Block& block) const noexcept {
        const auto& m = matrix;
        const auto part = [&](size_t at) { return m[at + 1] * row + m[at + 2]; };
        kernels.divide_places(
            {part(0), part(3), part(6), m[0], m[3], m[6], 1.0 * (1 << bits), kMostPx * 32, left, top},
            block.first, block.count, block.x, block.y);
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

// Rows of a block's columns, interpolated across. Two of them stay, since the next row of the result often
// needs one of them again.
class AcrossRows {
  public:
    AcrossRows(const Kernels& kernels, const PictureRows& from, const Colour& fill) noexcept
        : kernels_(kernels), from_(from), fill_(fill) {}

    void begin(const Block& block) noexcept {
        const auto column = [&](int i) { return std::clamp(block.x[i] >> kPlaceBits, -2, from_.width); };
        first_ = column(0);
        count_ = column(block.count - 1) + 2 - first_;
        for (int i = 0; i < block.count; ++i) {
            const int right = block.x[i] & ((1 << kPlaceBits) - 1);
            start_[i] = 3 * (column(i) - first_);
            weight_[2 * i] = ((1 << kPlaceBits) - right) << kMore;
            weight_[2 * i + 1] = right << kMore;
        }
        pass_ = {block.count, 2, 3, 0, 0, start_, weight_, nullptr};
        rows_[0] = rows_[1] = kNone;
    }

    const int16_t* row(int y) noexcept {
        const size_t place = y & 1;
        if (y < 0 || y >= from_.height) y = kOutside;
        if (rows_[place] != y) {
            make(y);
            kernels_.linear_across(pixels_, pass_, across_[place]);
            rows_[place] = y;
        }
        return across_[place];
    }

  private:
    static constexpr int kMore = kLinearBits - kBetweenBits;  // bits that the horizontal pass drops
    static constexpr int kOutside = -1, kNone = -2;

    void make(int y) noexcept {
        const int begin = std::clamp(-first_, 0, count_),
                  end = y == kOutside ? begin : std::clamp(from_.width - first_, begin, count_);
        for (int i = 0; i < begin; ++i) std::memcpy(pixels_ + 3 * i, fill_.data(), 3);
        if (begin < end) from_.write(y, first_ + begin, end - begin, pixels_ + 3 * begin);
        for (int i = end; i < count_; ++i) std::memcpy(pixels_ + 3 * i, fill_.data(), 3);
    }

    const Kernels& kernels_;
    const PictureRows& from_;
    const Colour& fill_;
    int first_ = 0, count_ = 0;  // columns of the picture
    int rows_[2];
    HorizontalPass pass_;
    int32_t start_[kBlock], weight_[2 * kBlock];
    uint8_t pixels_[3 * (2 * kBlock + 4) + kSlack];
    int16_t across_[2][3 * kBlock + kSlack / 2];
};

}  // namespace

bool warp_rows(const Kernels& kernels, const PictureRows& from, const DrawnWarp& warp,
               const Pixels& out) noexcept {
    const Matrix m = between_centres(warp.matrix);
    if (!warp.interpolates || m[1] != 0 || m[3] != 0 || !is_near(m, out.width, out.height)) return false;
    if (m[0] < 0 || m[0] > 2) return false;
    Sums places{Rule{m, kPlaceBits, 0, 0}, {}, {}};
    AcrossRows rows(kernels, from, warp.fill);
    Block block;
    for (block.first = 0; block.first < out.width; block.first += kBlock) {
        block.count = std::min(kBlock, out.width - block.first);
        places.begin(block);
        places.place(0, block);
        rows.begin(block);
        uint8_t* to = out.data + 3 * static_cast<size_t>(block.first);
        for (int row = 0; row < out.height; ++row, to += out.row_bytes()) {
            const int32_t y = places.start(3, row) >> (kSumBits - kPlaceBits);
            const int top = y >> kPlaceBits;
            kernels.mix_rows(rows.row(top), rows.row(top + 1), y & ((1 << kPlaceBits) - 1),
                             3 * static_cast<size_t>(block.count), to);
        }
    }
    return true;
}

void warp_fixed(const Kernels& kernels, const PicturePart& part, const DrawnWarp& warp,
                const Pixels& out) noexcept {
    const Pixels& in = part.pixels;
    const WarpSource from{in.data, in.height, in.width, in.channels, warp.fill.data()};
    const Matrix matrix = between_centres(warp.matrix);
    const int bits = warp.interpolates ? kPlaceBits : 0;
    const Rule rule{matrix, bits, part.left << bits, part.top << bits};
    const auto warp_by = [&](auto sample) {
        if (is_near(matrix, out.width, out.height)) fill_blocks(out, Sums{rule, {}, {}}, sample);
        else fill_blocks(out, Quotients{rule, kernels}, sample);
    };
    if (warp.interpolates)
        return warp_by([&](const Block& block, uint8_t* to) {
            kernels.interpolate(from, block.x, block.y, block.count, to);
        });
    with_channels(in.channels, [&](auto channels) {
        warp_by([&](const Block& block, uint8_t* to) { take_nearest<channels>(from, block, to); });
    });
}

// Returns the hull of the corners' places, with a pixel more on each side for rounding; the whole picture, if
// a corner is behind the horizon.
PicturePart seen(const DrawnWarp& warp, int height, int width) noexcept {
    const Matrix m = between_centres(warp.matrix);
    const PicturePart whole{{nullptr, height, width}, 0, 0, height, width};
    double low[2] = {kMostPx, kMostPx}, high[2] = {-kMostPx, -kMostPx};
    for (const double x : {0.0, warp.width - 1.0})
        for (const double y : {0.0, warp.height - 1.0}) {
            const double depth = m[6] * x + m[7] * y + m[8];
            if (!(depth > 0)) return whole;
            for (const size_t axis : {0, 1}) {
                const double place = (m[3 * axis] * x + m[3 * axis + 1] * y + m[3 * axis + 2]) / depth;
                if (!std::isfinite(place)) return whole;
                low[axis] = std::min(low[axis], place);
                high[axis] = std::max(high[axis], place);
            }
        }
    const auto side = [&](size_t axis, int length, int& first) {
        first = static_cast<int>(std::clamp(std::floor(low[axis]) - 1, 0.0, 1.0 * length));
        return static_cast<int>(std::clamp(std::floor(high[axis]) + 3, 1.0 * first, 1.0 * length)) - first;
    };
    PicturePart part = whole;
    part.pixels.width = side(0, width, part.left);
    part.pixels.height = side(1, height, part.top);
    return part;
}

}  // namespace standpipe
