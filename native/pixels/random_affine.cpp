// Rotations and affine warps with random parameters, as torchvision does them on Pillow images.
#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "pixels/operations.h"
#include "system/portable_math.h"

namespace standpipe {
namespace {

constexpr double kRadian = 3.14159265358979323846 / 180.0;

struct Numbers {
    const PixelStage& stage;
    size_t at;  // of the interpolation, the colour outside, whether there is a centre, and its x and y
    const std::vector<double>& all = stage.parameters;

    Sampling sampling() const noexcept { return sampling_in(stage, at); }
    Colour fill() const noexcept { return colour_in(stage, at + 1); }
    double x(int width) const noexcept { return all[at + 5] != 0 ? all[at + 6] : width / 2.0; }
    double y(int height) const noexcept { return all[at + 5] != 0 ? all[at + 7] : height / 2.0; }
};

// Ten numbers: the lowest and the highest angle in degrees, and those of Numbers.
void rotate(const PixelStage& stage, Draws& draws, Canvas& canvas, uint8_t* scratch) noexcept {
    const Numbers numbers{stage, 2};
    const double angle = draws.uniform(stage.parameters[0], stage.parameters[1]);
    const AffineMatrix matrix = rotation(angle, numbers.x(canvas.width()), numbers.y(canvas.height()));
    warp(canvas, matrix.numbers, numbers.sampling(), numbers.fill(), scratch);
}

// torchvision's _get_inverse_affine_matrix.
AffineMatrix inverse(double degrees, double dx, double dy, double scale, double shear_x, double shear_y,
                     double x, double y) noexcept {
    const SineCosine skew_x = portable_sine_cosine(shear_x * kRadian),
                     skew_y = portable_sine_cosine(shear_y * kRadian),
                     turn = portable_sine_cosine(degrees * kRadian),
                     both = portable_sine_cosine(degrees * kRadian - shear_y * kRadian);
    const double tangent = skew_x.sine / skew_x.cosine;
    const double a = both.cosine / skew_y.cosine, b = -both.cosine * tangent / skew_y.cosine - turn.sine,
                 c = both.sine / skew_y.cosine, d = -both.sine * tangent / skew_y.cosine + turn.cosine;
    AffineMatrix m{{d / scale, -b / scale, 0, -c / scale, a / scale, 0}};
    m.numbers[2] = m.numbers[0] * (-x - dx) + m.numbers[1] * (-y - dy) + x;
    m.numbers[5] = m.numbers[3] * (-x - dx) + m.numbers[4] * (-y - dy) + y;
    return m;
}

// The inverse of both shears · scale · rotation, from a place in the result to one around the origin, which
// went to (x, y).
AffineMatrix inverse_of_family(double degrees, double scale, double shear_x, double shear_y, double x,
                               double y) noexcept {
    const SineCosine skew_x = portable_sine_cosine(shear_x * kRadian),
                     skew_y = portable_sine_cosine(shear_y * kRadian),
                     turn = portable_sine_cosine(degrees * kRadian);
    const double a = skew_x.sine / skew_x.cosine, b = skew_y.sine / skew_y.cosine,
                 times = 1 / (scale * (1 - a * b));
    AffineMatrix m{{(turn.cosine + b * turn.sine) * times, (turn.sine + a * turn.cosine) * times, 0,
                    (b * turn.cosine - turn.sine) * times, (turn.cosine - a * turn.sine) * times, 0}};
    for (const size_t row : {0, 3}) m.numbers[row + 2] = -m.numbers[row] * x - m.numbers[row + 1] * y;
    return m;
}

// Returns the same to a place in a picture whose centre is (x, y). Around it, the picture gets the
// perspective (1, 0, 0; 0, 1, 0; px, py, 1) first.
std::array<double, 8> from_centre(const AffineMatrix& around, double px, double py, double x,
                                  double y) noexcept {
    const auto& m = around.numbers;
    const auto depth = [&](size_t i) { return (i == 2 ? 1 : 0) - px * m[i] - py * m[3 + i]; };
    std::array<double, 8> found;
    for (size_t i = 0; i < 3; ++i) {
        found[i] = (m[i] + x * depth(i)) / depth(2);
        found[3 + i] = (m[3 + i] + y * depth(i)) / depth(2);
        if (i < 2) found[6 + i] = depth(i) / depth(2);
    }
    return found;
}

void move(const PixelStage& stage, Draws& draws, Canvas& canvas, uint8_t* scratch) noexcept {
    const DrawnWarp drawn = drawn_affine(stage, draws, canvas.height(), canvas.width());
    if (stage.height > 0) return warp_fixed(canvas, drawn, scratch);
    warp(canvas, std::span(drawn.matrix).first(6), sampling_in(stage, 10), drawn.fill, scratch);
}

}  // namespace

// Nineteen numbers: ranges of the angle in degrees, of the scale, and of both shears in degrees; the largest
// translations, as parts of width and height; those of Numbers; and the largest perspective, for a size.
DrawnWarp drawn_affine(const PixelStage& stage, Draws& draws, int height, int width) noexcept {
    const auto& n = stage.parameters;
    const Numbers numbers{stage, 10};
    const bool is_sized = stage.height > 0;
    DrawnWarp warp{{}, height, width, numbers.sampling() == Sampling::fixed_bilinear, numbers.fill()};
    if (is_sized) warp.height = stage.height, warp.width = stage.width;
    const double angle = draws.uniform(n[0], n[1]);
    const double most_x = n[8] * warp.width, most_y = n[9] * warp.height;
    const double dx = draws.uniform(-most_x, most_x);
    const double dy = draws.uniform(-most_y, most_y);
    const double scale = draws.uniform(n[2], n[3]);
    const double shear_x = draws.uniform(n[4], n[5]);
    const double shear_y = draws.uniform(n[6], n[7]);
    if (!is_sized) {
        const AffineMatrix matrix = inverse(angle, std::nearbyint(dx), std::nearbyint(dy), scale, shear_x,
                                            shear_y, numbers.x(width), numbers.y(height));
        std::ranges::copy(matrix.numbers, warp.matrix.begin());
        return warp;
    }
    const double px = draws.uniform(-n[18], n[18]), py = draws.uniform(-n[18], n[18]);
    warp.matrix = from_centre(
        inverse_of_family(angle, scale, shear_x, shear_y, warp.width / 2.0 + dx, warp.height / 2.0 + dy), px,
        py, width / 2.0, height / 2.0);
    return warp;
}

constinit const PixelKind kRotation{"rotation", 10, whole_picture, rotate, true};
constinit const PixelKind kRandomAffine{"random_affine", 19, whole_picture, move, true};

}  // namespace standpipe
