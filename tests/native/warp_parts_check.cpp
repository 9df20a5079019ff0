// Warps of parts of pictures: random ones, each from the part that `seen` says and from the whole picture.
// Exits with 1 and a sentence at the first difference, or if parts aren't smaller.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "pixels/operations.h"

namespace standpipe {
namespace {

constexpr int kWarps = 4000;

int between(Draws& draws, int low, int high) {
    return low + static_cast<int>(draws.below(static_cast<uint64_t>(high - low) + 1));
}

DrawnWarp any_warp(Draws& draws, int height, int width) {
    const double scale = draws.below(4) ? draws.uniform(0.1, 3) : 1;
    DrawnWarp warp{{}, between(draws, 1, 60), between(draws, 1, 300), draws.below(2) == 0, {1, 2, 3, 4}};
    for (size_t i = 0; i < 8; ++i) warp.matrix[i] = i % 4 == 0 ? scale : draws.uniform(-0.5, 0.5);
    warp.matrix[2] = draws.uniform(-0.5, 1) * width;
    warp.matrix[5] = draws.uniform(-0.5, 1) * height;
    const double perspective = draws.below(2) ? 0 : draws.below(4) ? 1e-3 : 0.1;
    for (const size_t i : {6, 7}) warp.matrix[i] = draws.uniform(-perspective, perspective);
    return warp;
}

PicturePart copied(const Pixels& whole, PicturePart part, std::vector<uint8_t>& bytes) {
    part.pixels.channels = whole.channels;
    for (int y = part.top; y < part.top + part.pixels.height; ++y) {
        const uint8_t* const row = whole.data + static_cast<size_t>(y) * whole.row_bytes() +
                                   static_cast<size_t>(part.left * whole.channels);
        bytes.insert(bytes.end(), row, row + part.pixels.row_bytes());
    }
    bytes.shrink_to_fit();
    part.pixels.data = bytes.data();
    return part;
}

double check(Draws& draws) {
    Pixels whole{nullptr, between(draws, 1, 80), between(draws, 1, 80), between(draws, 1, 4)};
    std::vector<uint8_t> pixels(whole.bytes()), bytes;
    for (uint8_t& each : pixels) each = static_cast<uint8_t>(draws.below(256));
    whole.data = pixels.data();
    const DrawnWarp warp = any_warp(draws, whole.height, whole.width);
    const PicturePart all{whole, 0, 0, whole.height, whole.width},
        part = copied(whole, seen(warp, whole.height, whole.width), bytes);
    Pixels out{nullptr, warp.height, warp.width, whole.channels};
    std::vector<uint8_t> want(out.bytes()), got(out.bytes());
    out.data = want.data();
    warp_fixed(kScalarKernels, all, warp, out);
    out.data = got.data();
    warp_fixed(kScalarKernels, part, warp, out);
    if (want != got) {
        std::printf("a part of %d x %d pixels from %d, %d of %d x %d gives other pixels\n",
                    part.pixels.height, part.pixels.width, part.top, part.left, whole.height, whole.width);
        std::exit(1);
    }
    return static_cast<double>(bytes.size()) / static_cast<double>(pixels.size());
}

}  // namespace
}  // namespace standpipe

int main() {
    standpipe::Draws draws(1);
    double sum = 0;
    for (int i = 0; i < standpipe::kWarps; ++i) sum += standpipe::check(draws);
    std::printf("%.3f\n", sum / standpipe::kWarps);
}
