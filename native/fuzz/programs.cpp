#include "fuzz/programs.h"

namespace standpipe {
namespace {

constexpr DecodeLimits kLarge{1 << 22, 100}, kTiny{1 << 12, 3};

GeometryStage resize_to(int height, int width, Filter filter) {
    GeometryStage stage;
    stage.resize = GeometryStage::Resize::exact;
    stage.target = {height, width};
    stage.filter = filter;
    return stage;
}

GeometryStage with_crop(GeometryStage stage) {
    stage.has_crop = true;
    stage.crop.op = 1;
    stage.mirrors.push_back({2, 0.5});
    return stage;
}

GeometryStage shorter_side(int size, int max_size, Filter filter, Size window) {
    GeometryStage stage;
    stage.resize = GeometryStage::Resize::shorter_side;
    stage.target = {size, size};
    stage.max_size = max_size;
    stage.filter = filter;
    stage.has_window = true;
    stage.window.size = window;
    return stage;
}

Program program_of(std::vector<Stage> stages, Size size, ElementType type, bool planar) {
    Program program;
    Head& head = program.heads.front();
    head.passes = passes_of(std::move(stages));
    head.format.height = size.height;
    head.format.width = size.width;
    head.format.type = type;
    head.format.planar = planar;
    for (size_t c = 0; c < kMostChannels; ++c)
        for (size_t i = 0; i < 256; ++i) {
            head.format.f32[c][i] = static_cast<float>(i) / 255 - static_cast<float>(c);
            head.format.f16[c][i] = static_cast<uint16_t>(i * 3 + c);
        }
    program.inputs.front().limits = kSmall;
    return program;
}

}  // namespace

std::vector<Program> make_programs() {
    using enum ElementType;
    using enum Filter;
    GeometryStage window;
    window.has_window = true;
    window.window.size = {29, 53};
    GeometryStage enlarged = shorter_side(120, 0, hamming, {131, 97});
    std::vector<Program> programs{
        program_of({with_crop(resize_to(48, 40, bilinear))}, {48, 40}, f32, true),
        program_of({shorter_side(40, 0, bicubic, {32, 32})}, {32, 32}, u8, false),
        program_of({with_crop(resize_to(33, 47, lanczos)), shorter_side(20, 64, box, {24, 30})}, {24, 30},
                   f16, true),
        program_of({with_crop(resize_to(9, 7, bilinear))}, {9, 7}, u8, true),  // fast
        program_of({window}, {29, 53}, f32, false),
        program_of({with_crop(enlarged)}, {131, 97}, u8, true),
        program_of({with_crop(resize_to(31, 17, nearest)), with_crop(resize_to(64, 5, lanczos))}, {64, 5},
                   f16, false),
        program_of({with_crop(resize_to(24, 24, bicubic))}, {24, 24}, f32, true),   // tiny caps
        program_of({shorter_side(32, 0, bilinear, {28, 28})}, {28, 28}, u8, true),  // large pictures
    };
    programs[3].inputs.front().fast = true;
    programs[7].inputs.front().limits = kTiny;
    programs[8].inputs.front().limits = kLarge;
    for (const PixelKind* kind : pixel_kinds()) {
        const PixelStage stage{kind, 3, 0.7, std::vector<double>(kind->parameters, 1.7), {}};
        programs.push_back(
            program_of({stage, with_crop(resize_to(19, 26, bilinear)), stage, stage}, {19, 26}, f32, true));
        if (kind == &kToGrey) programs.back().heads.front().format.channels = 1;
    }
    return programs;
}

}  // namespace standpipe
