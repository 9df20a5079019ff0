// CPU microseconds of the parts of a training row, by both entropy decoders in turn:
//   decode_split ROUNDS FILES…  ->  a line for each decoder: its name, codes, crop, row
//
// codes  of the crop, decoded at 1/8 of its size: every code is read, and hardly a pixel is made
// crop   decoded at full size, and given to nobody
// row    the same, resized to 224 × 224, mirrored or not, and written as float32
//
// Each is the mean over files of the median over rounds.
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "image/rows.h"

namespace standpipe {
namespace {

constexpr int kSize = 224;
constexpr size_t kParts = 3;

double cpu_us() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

bool decode(const std::vector<uint8_t>& file, const Program& program, const SampleKey& key, int denominator) {
    static JpegImage jpeg;
    if (!JpegImage::recognises(file) || !jpeg.open(file, program.inputs.front().limits).empty()) return false;
    const Box box = cut_of(program.heads.front().passes[0].geometry, jpeg.size(), key).box;
    const Size scaled = jpeg.scaled(denominator);
    const Region region{
        box.x / denominator, box.y / denominator,
        std::clamp((box.x + box.width) / denominator, box.x / denominator + 1, scaled.width),
        std::clamp((box.y + box.height) / denominator, box.y / denominator + 1, scaled.height)};
    PixelSink nowhere;
    const bool done = jpeg.decode(region, denominator, nowhere).empty();
    jpeg.close();
    return done;
}

int run(int rounds, int count, char** paths) {
    GeometryStage stage;
    stage.has_crop = true;
    stage.crop.op = 1;
    stage.resize = GeometryStage::Resize::exact;
    stage.target = {kSize, kSize};
    stage.mirrors.push_back({2, 0.5});
    Program program;
    program.inputs.front().limits = {.max_pixels = 178'956'970, .max_scans = 100};
    Head& head = program.heads.front();
    head.passes = passes_of({stage});
    head.format.height = head.format.width = kSize;
    head.format.type = ElementType::f32;
    head.format.planar = true;
    SideArena side(uint64_t{256} << 20);
    InputMaker maker;
    std::vector<uint8_t> out(head.format.row_bytes());

    std::array<std::array<double, kParts>, 2> sums{};
    int files = 0;
    for (int i = 0; i < count; ++i) {
        std::ifstream stream(paths[i], std::ios::binary);
        const std::vector<uint8_t> file((std::istreambuf_iterator<char>(stream)), {});
        const SampleKey key{7, static_cast<uint64_t>(i), 0};
        if (!decode(file, program, key, 1)) continue;  // Pillow's, or nobody's
        ++files;
        std::array<std::array<std::vector<double>, kParts>, 2> times;
        for (int round = 0; round < rounds; ++round) {
            for (size_t turn = 0; turn < 2; ++turn) {
                const size_t decoder = (turn + static_cast<size_t>(round)) % 2;
                program.inputs.front().limits.only_libjpeg = decoder == 1;
                double last = cpu_us();
                const auto took = [&last] {
                    const double before = std::exchange(last, cpu_us());
                    return last - before;
                };
                decode(file, program, key, 8);
                times[decoder][0].push_back(took());
                decode(file, program, key, 1);
                times[decoder][1].push_back(took());
                SideArena::Part part(side);
                maker.from_encoded(program, 0, file, key, out.data(), 0, part);
                times[decoder][2].push_back(took());
            }
        }
        for (size_t decoder = 0; decoder < 2; ++decoder)
            for (size_t part = 0; part < kParts; ++part) {
                auto& all = times[decoder][part];
                std::nth_element(all.begin(), all.begin() + rounds / 2, all.end());
                sums[decoder][part] += all[static_cast<size_t>(rounds / 2)];
            }
    }
    if (files == 0) return std::fprintf(stderr, "decode_split: no file is a JPEG that is decoded here\n"), 1;
    for (size_t decoder = 0; decoder < 2; ++decoder)
        std::printf("%s %.1f %.1f %.1f\n", decoder ? "libjpeg-turbo" : "standpipe", sums[decoder][0] / files,
                    sums[decoder][1] / files, sums[decoder][2] / files);
    return 0;
}

}  // namespace
}  // namespace standpipe

int main(int count, char** words) {
    const int rounds = count > 2 ? std::atoi(words[1]) : 0;
    if (rounds < 1) return std::fprintf(stderr, "decode_split ROUNDS FILES…\n"), 2;
    return standpipe::run(rounds, count - 2, words + 2);
}
