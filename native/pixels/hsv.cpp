// Random gains of hue, saturation and value, as the YOLO family has them, with OpenCV's 8-bit HSV.
#include <algorithm>
#include <array>
#include <cmath>

#include "pixels/pixels.h"

namespace standpipe {
namespace {

// A factor from 0 to 2, in 2^-14.
int factor_of(double gain) noexcept {
    return static_cast<int>(std::clamp(std::round((1 + gain) * (1 << 14)), 0.0, 1.0 * (1 << 15)));
}

// Three numbers: the largest gains of hue, saturation and value, from 0 to 1.
void gain(const PixelStage& stage, Draws& draws, Canvas& canvas, uint8_t*) noexcept {
    std::array<double, 3> gains;
    for (size_t i = 0; i < 3; ++i) gains[i] = stage.parameters[i] * draws.uniform(-1, 1);
    if (!canvas.has_colours()) return;
    const double turn = std::clamp(std::floor(gains[0] * 180), -180.0, 179.0);
    const Pixels pixels = canvas.pixels();
    canvas.kernels().gain_hsv(
        pixels.data, pixels.bytes() / 3,
        {static_cast<int>(turn < 0 ? turn + 180 : turn), factor_of(gains[1]), factor_of(gains[2])});
}

}  // namespace

constinit const PixelKind kHsv{"hsv", 3, no_scratch, gain};

}  // namespace standpipe
