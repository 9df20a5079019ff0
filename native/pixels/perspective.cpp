// A picture whose corners move inwards at random, as torchvision's RandomPerspective does it on Pillow
// images.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "pixels/operations.h"

namespace standpipe {
namespace {

using Row = std::array<double, 9>;  // of eight unknowns, and the right side

// Gauss's elimination with pivots. Coefficients are rounded to float32, as torchvision's are.
bool solved(std::array<Row, 8>& rows, std::array<double, 8>& found) noexcept {
    for (size_t i = 0; i < 8; ++i) {
        size_t pivot = i;
        for (size_t k = i + 1; k < 8; ++k)
            if (std::fabs(rows[k][i]) > std::fabs(rows[pivot][i])) pivot = k;
        if (std::fabs(rows[pivot][i]) < 1e-12) return false;
        std::swap(rows[i], rows[pivot]);
        for (size_t k = i + 1; k < 8; ++k) {
            const double factor = rows[k][i] / rows[i][i];
            for (size_t c = i; c < 9; ++c) rows[k][c] -= factor * rows[i][c];
        }
    }
    for (size_t i = 8; i-- > 0;) {
        double sum = rows[i][8];
        for (size_t c = i + 1; c < 8; ++c) sum -= rows[i][c] * found[c];
        found[i] = sum / rows[i][i];
    }
    for (double& each : found) each = static_cast<double>(static_cast<float>(each));
    return true;
}

// Six numbers: how far corners move, as a part of half a side; the interpolation; the colour outside.
void move(const PixelStage& stage, Draws& draws, Canvas& canvas, uint8_t* scratch) noexcept {
    const auto& n = stage.parameters;
    const int width = canvas.width(), height = canvas.height();
    const int across = static_cast<int>(std::clamp(n[0], 0.0, 1.0) * (width / 2)) + 1,
              down = static_cast<int>(std::clamp(n[0], 0.0, 1.0) * (height / 2)) + 1;
    const std::array<std::array<int, 2>, 4> corners{
        {{0, 0}, {width - 1, 0}, {width - 1, height - 1}, {0, height - 1}}};
    std::array<Row, 8> rows{};
    for (size_t i = 0; i < 4; ++i) {
        const double x = corners[i][0], y = corners[i][1];
        double to_x = draws.below(static_cast<uint64_t>(across));
        if (i == 1 || i == 2) to_x += width - across;
        double to_y = draws.below(static_cast<uint64_t>(down));
        if (i >= 2) to_y += height - down;
        rows[2 * i] = {to_x, to_y, 1, 0, 0, 0, -x * to_x, -x * to_y, x};
        rows[2 * i + 1] = {0, 0, 0, to_x, to_y, 1, -y * to_x, -y * to_y, y};
    }
    std::array<double, 8> matrix{};
    if (!solved(rows, matrix)) return;  // corners on a line: pictures of one row or column
    warp(canvas, matrix, sampling_in(stage, 1), colour_in(stage, 2), scratch);
}

}  // namespace

constinit const PixelKind kPerspective{"perspective", 6, whole_picture, move, true};

}  // namespace standpipe
