// Fuzzes everything that makes a row of bytes. There must be no crash and no write outside the row. Every
// instruction set must give the same answer, with memory used or fresh, for any part of the picture.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "fuzz/any_program.h"
#include "fuzz/collected.h"
#include "fuzz/harness.h"
#include "fuzz/own_malloc.h"
#include "image/rows.h"
#include "image/trace.h"

namespace standpipe {
namespace {

// The pictures that a program takes, the memory for its rows, and whether it has stages that change pixels.
struct Caps {
    DecodeLimits limits;
    uint64_t side_bytes;
    bool has_pixels = false;
};
constexpr uint64_t kSideBytes = 8 << 20, kLargeSideBytes = 64 << 20;
constexpr DecodeLimits kSmall{1 << 18, 100};
constexpr Caps kUsual{{1 << 15, 100}, kLargeSideBytes, true};  // small, so that many stages are fast enough
constexpr Caps kUnusual[] = {
    {{1 << 12, 3}, 32 << 10}, {kSmall, kSideBytes}, {{1 << 22, 100}, kLargeSideBytes}};
// The memory that a maker may take without announcing it: four times what a thread keeps.
constexpr size_t kUnannounced = 4 << 20;
constexpr size_t kGuard = 256;  // bytes in front of and behind a row
constexpr uint8_t kGuardByte = 0xc5;

// The rows of all heads, with guards around each.
struct Row {
    Outcome outcome;
    std::vector<uint8_t> bytes;
    std::vector<Output> heads;

    Bytes of(const Program& program, size_t head) const {
        return {heads[head].first, program.heads[head].format.row_bytes()};
    }
};

Row between_guards(const Program& program, uint8_t fill) {
    constexpr size_t kLine = 64;
    std::vector<size_t> at{kGuard};
    for (const Head& head : program.heads)
        at.push_back((at.back() + head.format.row_bytes() + kLine - 1) / kLine * kLine + kGuard);
    Row row{{}, std::vector<uint8_t>(at.back(), kGuardByte), {}};
    for (size_t h = 0; h < program.heads.size(); ++h) {
        row.heads.push_back({row.bytes.data() + at[h], 0});
        std::fill_n(row.heads.back().first, program.heads[h].format.row_bytes(), fill);
    }
    return row;
}

// Bytes that a row fails to write show as a difference between two fills.
template <typename Make>
Row guarded(const Program& program, uint8_t fill, Make make) {
    Row row = between_guards(program, fill);
    row.outcome = make(RowPlace(row.heads, 0));
    const uint8_t* from = row.bytes.data();
    const auto intact = [&](const uint8_t* to) {
        return std::all_of(from, to, [](uint8_t byte) { return byte == kGuardByte; });
    };
    for (size_t h = 0; h < program.heads.size(); ++h) {
        if (!intact(row.heads[h].first)) fail("bytes outside the row were written");
        from = row.heads[h].first + row.of(program, h).size();
    }
    if (!intact(row.bytes.data() + row.bytes.size())) fail("bytes outside the row were written");
    return row;
}

// Checks that two rows are the same where the heads of an input write.
void expect_same(const Program& program, size_t input, const Row& want, const Row& got,
                 const std::string& what) {
    if (want.outcome.kind != got.outcome.kind || want.outcome.text != got.outcome.text)
        fail(what + ": \"" + got.outcome.text + "\" instead of \"" + want.outcome.text + "\"");
    if (want.outcome.kind != Outcome::Kind::ok) return;
    for (const size_t h : program.heads_of(input)) {
        const Bytes here = want.of(program, h), there = got.of(program, h);
        const auto at = std::ranges::mismatch(here, there).in1 - here.begin();
        if (at != std::ssize(here)) fail(what + ": byte " + std::to_string(at) + " of the row differs");
    }
}

std::vector<const Kernels*> other_kernels() {
    std::vector<const Kernels*> found;
    for (const char* name : {"avx2", "avx512", "neon"})
        if (const Kernels* kernels = kernels_named(name)) found.push_back(kernels);
    return found;
}

// A part of the picture at 1/denominator, or what is wrong with the file.
struct Part {
    std::string text;
    Size scaled;
    Region region;
    int channels = 3;
    std::vector<uint8_t> pixels;
};

template <typename Choose>
Part decoded(Bytes bytes, Channels channels, int denominator, Choose choose) {
    Part part;
    JpegImage jpeg;
    DecodeLimits limits = kSmall;
    limits.channels = channels;
    part.text = jpeg.open(bytes, limits);
    if (!part.text.empty()) return part;
    if (jpeg.frame_bytes() > kSideBytes) return {"too large", {}, {}, 3, {}};
    part.scaled = jpeg.scaled(denominator);
    part.region = choose(part.scaled);
    part.channels = jpeg.channels();
    Collected sink(part.region.width(), part.channels);
    part.text = jpeg.decode(part.region, denominator, sink);
    part.pixels = std::move(sink.bytes);
    return part;
}

Part decoded_whole(Bytes bytes, Channels channels, int denominator) {
    return decoded(bytes, channels, denominator,
                   [](Size size) { return Region{0, 0, size.width, size.height}; });
}

std::string name_of(const Region& r) {
    return std::to_string(r.x0) + "," + std::to_string(r.y0) + " to " + std::to_string(r.x1) + "," +
           std::to_string(r.y1);
}

// Checks that a part has the pixels that the whole picture has there.
void check_part(Bytes bytes, Channels channels, const Part& whole, int denominator, Draws& draws) {
    const Part part =
        decoded(bytes, channels, denominator, [&](Size size) { return any_region(size, draws); });
    const std::string where = name_of(part.region) + " at 1/" + std::to_string(denominator);
    if (part.text.empty() != whole.text.empty())
        fail(where + ": \"" + part.text + "\", but the whole picture: \"" + whole.text + "\"");
    if (!part.text.empty()) return;
    const auto pixel = static_cast<size_t>(part.channels),
               row = pixel * static_cast<size_t>(part.region.width());
    for (int y = part.region.y0; y < part.region.y1; ++y) {
        const size_t at = (static_cast<size_t>(y) * static_cast<size_t>(whole.scaled.width) +
                           static_cast<size_t>(part.region.x0)) *
                          pixel;
        if (std::memcmp(&whole.pixels[at], &part.pixels[static_cast<size_t>(y - part.region.y0) * row],
                        row) != 0)
            fail(where + ": row " + std::to_string(y) + " differs from the whole picture's");
    }
}

// Makes a row by a maker that made none before. It must take no more memory than it says.
Outcome by_new_maker(const Program& program, size_t input, uint64_t side_bytes, Bytes bytes,
                     const SampleKey& key, const RowPlace& out) {
    restart_peak();
    const size_t before = live_bytes();
    SideArena side(side_bytes);
    SideArena::Part part(side);
    Outcome outcome = InputMaker().from_encoded(program, input, bytes, key, out, 0, part);
    const size_t taken = peak_bytes() - before;
    if (taken > side.peak() + kUnannounced)
        fail("took " + std::to_string(taken) + " bytes with " + std::to_string(side.peak()) + " announced");
    return outcome;
}

InputMaker used;  // by earlier rows

Outcome from_pixels(const Program& program, size_t input, const Part& picture, const SampleKey& key,
                    const RowPlace& out) {
    SideArena side(kLargeSideBytes);
    SideArena::Part part(side);
    const RawPixels pixels{picture.pixels.data(), picture.scaled, picture.channels};
    return used.from_pixels(program, input, pixels, key, out, part);
}

// Checks that the row of each head of an input is the one that it makes alone.
void check_heads(const Program& program, size_t input, const Row& together, const Part& whole,
                 const SampleKey& key) {
    for (const size_t h : program.heads_of(input)) {
        if (program.heads.size() == 1) return;
        Program alone = program;
        alone.heads = {program.heads[h]};
        const Row row = guarded(
            alone, 0xdd, [&](const RowPlace& out) { return from_pixels(alone, input, whole, key, out); });
        if (row.outcome.kind != Outcome::Kind::ok) fail("alone: \"" + row.outcome.text + "\"");
        if (!std::ranges::equal(row.of(alone, 0), together.of(program, h)))
            fail("head " + std::to_string(h) + " makes another row alone");
    }
}

// Checks that a row in the corner of a larger canvas is the one that fills a place of its own size, and that
// all else is padding.
void check_canvas(Program program, size_t input, const Row& want, const Part& whole, const SampleKey& key) {
    constexpr uint8_t kPadding = 0x3a;
    std::vector<std::vector<uint8_t>> memory;
    std::vector<Output> outputs;
    for (Head& head : program.heads) {
        const Size picture{head.format.height, head.format.width},
            canvas{picture.height + static_cast<int>(key.position % 5),
                   picture.width + static_cast<int>(key.position % 7)};
        head.format.height = head.format.width = 0;
        head.format.padding.fill(kPadding);
        memory.emplace_back(head.format.bytes_of(canvas) + 2 * kGuard, kGuardByte);
        outputs.push_back({nullptr, 0, {{memory.back().data() + kGuard, picture, canvas}}});
    }
    const Outcome outcome = from_pixels(program, input, whole, key, RowPlace(outputs, 0));
    if (outcome.kind != Outcome::Kind::ok) fail("in a canvas: \"" + outcome.text + "\"");
    for (const size_t h : program.heads_of(input)) {
        const RowFormat& format = program.heads[h].format;
        const auto& [first, picture, canvas] = outputs[h].areas.front();
        const size_t pixel =
                         format.element_bytes() * static_cast<size_t>(format.planar ? 1 : format.channels),
                     used = pixel * static_cast<size_t>(picture.width);
        std::vector<uint8_t> right(kGuard, kGuardByte);
        const uint8_t* from = want.heads[h].first;
        for (int plane = 0; plane < (format.planar ? format.channels : 1); ++plane)
            for (int y = 0; y < canvas.height; ++y) {
                const size_t end = right.size() + pixel * static_cast<size_t>(canvas.width);
                if (y < picture.height) right.insert(right.end(), from, from + used), from += used;
                right.resize(end, kPadding);
            }
        right.resize(right.size() + kGuard, kGuardByte);
        if (right != memory[h]) fail("head " + std::to_string(h) + " makes another row in a canvas");
    }
}

// Checks bytes as a mask: every kernel must give the same numbers, and only those of the mask or
// kMaskOutside.
uint64_t check_mask(Program program, size_t input, Bytes bytes, const SampleKey& key, Draws& draws) {
    Part mask;
    mask.scaled.width = 1 + static_cast<int>(draws.below(std::min<size_t>(bytes.size(), 80)));
    mask.scaled.height =
        static_cast<int>(std::min<size_t>(bytes.size() / static_cast<size_t>(mask.scaled.width), 80));
    mask.channels = 1;
    mask.pixels.assign(bytes.begin(), bytes.begin() + mask.scaled.width * mask.scaled.height);
    const auto made = [&](const Kernels& kernels, uint8_t fill) {
        program.kernels = &kernels;
        return guarded(program, fill,
                       [&](const RowPlace& out) { return from_pixels(program, input, mask, key, out); });
    };
    const Row want = made(kScalarKernels, 0x55);
    if (want.outcome.kind != Outcome::Kind::ok) return 0;
    expect_same(program, input, want, made(best_kernels(), 0xaa), "mask");
    check_heads(program, input, want, mask, key);
    check_canvas(program, input, want, mask, key);
    for (const size_t h : program.heads_of(input))
        for (const uint8_t number : want.of(program, h))
            if (number != kMaskOutside && std::ranges::find(mask.pixels, number) == mask.pixels.end())
                fail("the mask has no " + std::to_string(number));
    return digest_of(want.bytes);
}

// The row that the program makes, the same by every kernel, and the same from decoded pixels.
uint64_t check_program(Program program, size_t input, uint64_t side_bytes, Bytes bytes, const Part& whole,
                       const SampleKey& key) {
    static const std::vector<const Kernels*> others = other_kernels();

    const auto encoded = [&](uint8_t fill) {
        return guarded(program, fill, [&](const RowPlace& out) {
            SideArena side(kLargeSideBytes);
            SideArena::Part part(side);
            return used.from_encoded(program, input, bytes, key, out, 0, part);
        });
    };
    program.kernels = &kScalarKernels;
    const Row want = guarded(program, 0x55, [&](const RowPlace& out) {
        return by_new_maker(program, input, side_bytes, bytes, key, out);
    });
    const std::string& text = want.outcome.text;
    const uint64_t digest = digest_of({reinterpret_cast<const uint8_t*>(text.data()), text.size()},
                                      static_cast<uint64_t>(want.outcome.kind));
    if (want.outcome.kind != Outcome::Kind::ok) return digest;
    uint8_t fill = 0xaa;
    for (const Kernels* kernels : others) {
        program.kernels = kernels;
        expect_same(program, input, want, encoded(++fill), kernels->name);
    }
    if (!whole.text.empty()) return digest_of(want.bytes, digest);
    const Row pixels = guarded(
        program, 0xbb, [&](const RowPlace& out) { return from_pixels(program, input, whole, key, out); });
    bool& fast = program.inputs[input].fast;
    if (!fast) expect_same(program, input, want, pixels, "from pixels");
    fast = false;
    expect_same(program, input, encoded(0xcc), pixels, "from pixels");
    check_heads(program, input, pixels, whole, key);
    check_canvas(program, input, pixels, whole, key);
    return digest_of(want.bytes, digest);
}

// Draws the windows of crops by boxes. Rows that are given these must make the same moves.
std::vector<int32_t> traced_windows(const Program& program, Size source, const SampleKey& key, Draws& draws) {
    std::vector<int32_t> windows(4 * program.windows);
    std::vector<Edges> boxes(draws.below(4));
    for (Edges& box : boxes)
        for (size_t axis = 0; axis < 2; ++axis) {
            const double length = axis == 0 ? source.width : source.height;
            box[axis] = draws.uniform(0, length);
            box[axis + 2] = draws.uniform(box[axis], length);
        }
    for (size_t h = 0; h < program.heads.size(); ++h) {
        std::vector<Move> drawn, given;
        std::vector<Edges> own = boxes;
        trace(program, h, source, key, drawn, own, windows);
        SampleKey with_windows = key;
        with_windows.windows = windows.data();
        trace(program, h, source, with_windows, given);
        const auto same = [](const Move& one, const Move& other) {
            return std::memcmp(&one.matrix, &other.matrix, sizeof one.matrix) == 0 &&
                   one.height == other.height && one.width == other.width && one.kind == other.kind;
        };
        if (!std::ranges::equal(drawn, given, same)) fail("a row that is given its windows moves otherwise");
    }
    return windows;
}

// The rows of each input of some program.
uint64_t check_any_program(Bytes bytes, const Caps& caps, const Part& whole, SampleKey key, Draws& draws) {
    const Program program = any_program(draws, caps.limits, caps.has_pixels);
    std::vector<int32_t> windows(4 * program.windows);
    for (int32_t& each : windows) each = static_cast<int32_t>(draws.word());
    if (whole.text.empty()) windows = traced_windows(program, whole.scaled, key, draws);
    key.windows = windows.data();
    uint64_t digest = 0;
    for (size_t input = 0; input < program.inputs.size(); ++input) {
        const Input& from = program.inputs[input];
        if (!from.is_exact())
            digest = mix(digest, check_program(program, input, caps.side_bytes, bytes,
                                               decoded_whole(bytes, from.limits.channels, 1), key));
        else if (!bytes.empty()) digest = mix(digest, check_mask(program, input, bytes, key, draws));
    }
    return digest;
}

uint64_t check_all(Bytes bytes) {
    uint64_t digest = digest_of(bytes);
    const SampleKey key{digest, digest >> 7, digest & 1};
    Draws draws(digest);

    Part whole;
    for (const int denominator : {8, 4, 2, 1}) {
        const auto channels = static_cast<Channels>(draws.below(5));
        whole = decoded_whole(bytes, channels, denominator);
        digest = digest_of(whole.pixels, digest);
        if (whole.scaled.width == 0) break;  // refused before its pixels
        check_part(bytes, channels, whole, denominator, draws);
    }
    whole = decoded_whole(bytes, Channels::rgb, 1);
    for (const Caps& caps : {kUsual, kUnusual[draws.below(std::size(kUnusual))]})
        digest = mix(digest, check_any_program(bytes, caps, whole, key, draws));
    return digest;
}

}  // namespace
}  // namespace standpipe

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace standpipe;
    // An allocation of its own size, so that a read past the end shows.
    const std::vector<uint8_t> bytes(data, data + size);
    if (!has_own_malloc()) {
        check_all(bytes);
        return 0;
    }
    fill_fresh_memory(0x00);
    const uint64_t digest = check_all(bytes);
    fill_fresh_memory(0xd7);
    if (check_all(bytes) != digest) fail("the row depends on what its memory held before");
    return 0;
}
