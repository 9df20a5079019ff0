// Programs, and what makes the parts of a row that come of one picture: from encoded bytes or pixels to the
// slot.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "image/erasing.h"
#include "image/geometry.h"
#include "image/jpeg.h"
#include "image/row_format.h"
#include "memory/no_memory.h"
#include "memory/side_arena.h"
#include "pixels/pixels.h"

namespace standpipe {

using Stage = std::variant<GeometryStage, PixelStage>;

// Pixels move once, row by row, and are then changed as a whole where they are.
struct Pass {
    GeometryStage geometry;
    std::vector<PixelStage> pixels;
};

// The passes that do `stages` in this order: at least one, and the last one writes the slot, so it has no
// pixel stages.
std::vector<Pass> passes_of(std::vector<Stage> stages);

// A field of the records of which a program makes outputs, and how it is decoded.
struct Input {
    int kind = 0;       // its number in Python's table of kinds; 0: an image, whose values stages may change
    int channels = 3;   // of the picture before all passes; of other kinds, the bytes of an element
    bool fast = false;  // decode at 1/2, 1/4 or 1/8 where the first passes of all its heads allow it
    DecodeLimits limits;
    bool upright = false;  // the EXIF orientation is applied: files that have another one are foreign
    int grid = 1;  // pixels of which sizes and places are multiples; inputs' sizes differ as their grids do

    // Returns whether pixels are only moved. Pillow decodes such files.
    bool is_exact() const noexcept { return kind != 0; }
};

// One output of a program.
struct Head {
    size_t input = 0;  // number of the input of which it is made
    std::vector<Pass> passes = passes_of({});
    RowFormat format;
    Erasing erasing;    // of the finished row
    uint64_t salt = 0;  // of its random numbers; 0: they are the sample's own
    // The head whose row it writes where it mirrors pixels, as the fields of a stereo pair swap then.
    std::optional<size_t> twin;
};

// The fused form of a pipeline's image transforms: inputs, each decoded once, of which heads make outputs.
struct Program : std::enable_shared_from_this<Program> {
    std::vector<Input> inputs{1};
    std::vector<Head> heads{1};  // those of one input follow each other, in the order of inputs
    const Kernels* kernels = &best_kernels();
    size_t windows = 0;  // crops that boxes decide: a row has so many

    // Returns the format of the first head.
    const RowFormat& format() const noexcept { return heads.front().format; }

    // Returns the numbers of the heads that are made of an input.
    auto heads_of(size_t input) const noexcept {
        if (inputs.size() == 1) return std::views::iota(size_t{0}, heads.size());
        const auto found = std::ranges::equal_range(heads, input, {}, &Head::input);
        const auto first = static_cast<size_t>(found.begin() - heads.begin());
        return std::views::iota(first, first + found.size());
    }
};

// Returns whether every pixel keeps its value, and none is added or removed.
bool only_mirrors(const GeometryStage& stage) noexcept;

// Returns whether all that the program does to pixels of `size` is to copy them.
bool only_copies(const Program& program, Size size) noexcept;

// The rows of one head in a slot: row i begins at first + i * stride. `areas`: of each row, where the head's
// format has no size.
struct Output {
    uint8_t* first = nullptr;
    size_t stride = 0;
    std::vector<RowArea> areas{};
};

// The place where the heads of a program write one row.
class RowPlace {
  public:
    RowPlace(uint8_t* only) noexcept : only_(only) {}  // of a program with one head
    RowPlace(std::span<const Output> outputs, size_t row) noexcept : outputs_(outputs), row_(row) {}

    RowArea of(size_t head, const RowFormat& format) const noexcept {
        const Size size{format.height, format.width};
        if (outputs_.empty()) return {only_, size, size};
        const Output& output = outputs_[head];
        if (format.varies()) return row_ < output.areas.size() ? output.areas[row_] : RowArea{};
        return {output.first + row_ * output.stride, size, size};
    }

  private:
    uint8_t* only_ = nullptr;
    std::span<const Output> outputs_;
    size_t row_ = 0;
};

struct Outcome {
    enum class Kind : uint8_t { ok, read_error, decode_error, foreign, cancelled };

    Kind kind = Kind::ok;
    bool damaged = false;  // decoded over damage, as Pillow does too
    std::string text;
    bool truncated = false;  // decoded although it ends too soon
    bool smoothed = false;   // it lacks scans, and Pillow's pixels may differ
    bool redecoded = false;  // libjpeg-turbo decoded it again, as our entropy decoder had a doubt
    bool by_pillow = false;
    Size size{};  // of the picture before all stages, where it is known

    static Outcome decode_error(std::string text) { return {Kind::decode_error, false, std::move(text)}; }
    static Outcome no_memory() noexcept { return {Kind::decode_error, false, kNoMemory}; }
};

// Returns the error message for a row that needs more of the side arena than there is.
std::string over_side_cap(uint64_t needed, uint64_t cap);

// Returns how many of a row's bytes of scratch are more than its thread keeps.
uint64_t not_kept(uint64_t bytes) noexcept;

// The pixels of an input: (height, width, channels) bytes, rows packed.
struct RawPixels {
    const uint8_t* first = nullptr;
    Size size;
    int channels = 3;
    bool has_slack = false;  // kSlack bytes behind the last pixel may be read
};

// Makes rows of inputs, one at a time; every thread has its own, whose scratch memory is used again for each.
//
// `part` is the row's part of the side arena. The memory that an input needs is added to it.
class InputMaker {
  public:
    InputMaker();
    ~InputMaker();

    // Makes the rows of an input's heads from encoded bytes. Bytes for Pillow to decode give Kind::foreign
    // and leave `out` alone. `uncounted_bytes`: the part of `bytes` that is in memory which no other budget
    // counts.
    Outcome from_encoded(const Program& program, size_t input, std::span<const uint8_t> bytes,
                         const SampleKey& key, const RowPlace& out, uint64_t uncounted_bytes,
                         SideArena::Part& part);

    Outcome from_pixels(const Program& program, size_t input, const RawPixels& pixels, const SampleKey& key,
                        const RowPlace& out, SideArena::Part& part);

    // Sets `bytes` to what from_pixels would allocate. Returns an error message if the rows can't be made.
    std::string bytes_from_pixels(const Program& program, size_t input, Size size, const SampleKey& key,
                                  uint64_t& bytes);

  private:
    struct OfHead;
    struct Scratch;

    Outcome size_passes(const Program& program, size_t input, Size source, bool scales, const SampleKey& key,
                        uint64_t& bytes);
    Outcome prepare(const Program& program, size_t input, Size source, bool scales, uint64_t source_bytes,
                    const SampleKey& key, SideArena::Part& part, const RowPlace& out);
    Outcome decode(const Program& program, size_t input, const SampleKey& key, uint64_t encoded_bytes,
                   SideArena::Part& part, const RowPlace& out);
    RowArea place_of(const Program& program, size_t head, const RowPlace& out) const noexcept;
    std::string misfit(const Program& program, size_t input, const RowPlace& out) const;
    // `waiting`: tables of the pass's source that the slot's row is written through, or null.
    Resampler& begin(const Program& program, size_t head, size_t pass, const RowPlace& out,
                     const ByteTables* waiting = nullptr);
    void later_passes(const Program& program, size_t head, const RowPlace& out);
    std::string decode_once(const Program& program, size_t input, const RowPlace& out);
    void push_pixels(const RawPixels& pixels, Resampler& resampler);

    std::unique_ptr<Scratch> scratch_;
};

}  // namespace standpipe
