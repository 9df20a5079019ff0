// Rotations and affine warps with random parameters, as torchvision does them on Pillow images.
#include <algorithm>
#include <array>
#include <cmath>

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

// Eighteen numbers: ranges of the angle in degrees, of the scale, and of both shears in degrees; the largest
// translations, as parts of width and height; and those of Numbers.
void move(const PixelStage& stage, Draws& draws, Canvas& canvas, uint8_t* scratch) noexcept {
    const auto& n = stage.parameters;
    const Numbers numbers{stage, 10};
    const double angle = draws.uniform(n[0], n[1]);
    const double most_x = n[8] * canvas.width(), most_y = n[9] * canvas.height();
    const double dx = std::nearbyint(draws.uniform(-most_x, most_x));
    const double dy = std::nearbyint(draws.uniform(-most_y, most_y));
    const double scale = draws.uniform(n[2], n[3]);
    const double shear_x = draws.uniform(n[4], n[5]);
    const double shear_y = draws.uniform(n[6], n[7]);
    const AffineMatrix matrix = inverse(angle, dx, dy, scale, shear_x, shear_y, numbers.x(canvas.width()),
                                        numbers.y(canvas.height()));
    warp(canvas, matrix.numbers, numbers.sampling(), numbers.fill(), scratch);
}

}  // namespace

extern const PixelKind kRotation, kRandomAffine;
constinit const PixelKind kRotation{"rotation", 10, whole_picture, rotate, true};
constinit const PixelKind kRandomAffine{"random_affine", 18, whole_picture, move, true};

}  // namespace standpipe
