// Makes rows: one input after another, with its part of the side arena, Pillow's share and the counters.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "image/compose.h"
#include "image/rows.h"
#include "io/reader.h"
#include "memory/heartbeat.h"
#include "memory/side_arena.h"

namespace standpipe {

// Counts of rows, or of their inputs, by outcome.
struct RowCounts {
    uint64_t made = 0;
    uint64_t damaged = 0, truncated = 0;  // made of files that aren't whole
    uint64_t redecoded = 0;               // that libjpeg-turbo decoded again
    uint64_t foreign = 0;                 // that Pillow decoded

    void add(const Outcome& outcome) noexcept;
};

// An encoded input. `uncounted_bytes`: the part of `bytes` that is in memory which no other budget counts.
struct Encoded {
    std::span<const uint8_t> bytes;
    uint64_t uncounted_bytes = 0;
};

using InputData = std::variant<Encoded, RawPixels>;

// A row to make, or one input of it.
struct Row {
    SampleKey key;
    RowPlace place;
    Size first{};  // of the first input, as annotations say or it was made; {0, 0}: it may have any
    uint64_t beside_bytes = 0;  // of memory for the row that counts where Pillow decodes it
};

// Has Pillow decode what native code doesn't, in a thread that may run Python.
class Fallback {
  public:
    // Waits for the memory that decoding needs, and for that of making the row of pixels of a size. Returns
    // an error message if there can't be so much.
    using Reserve = std::function<std::string(Size size, uint64_t frame_bytes)>;
    using Use = std::function<void(const RawPixels& pixels, bool truncated)>;

    virtual ~Fallback() = default;
    // Calls `reserve` before it takes memory, and `use` with the pixels, which it frees before it returns.
    // Returns an error message if the bytes can't be decoded.
    virtual std::string decode(std::span<const uint8_t> bytes, const Input& input, const Reserve& reserve,
                               const Use& use) = 0;
};

// Returns the error message for an input that doesn't have the size of its row's first one, which is `first`,
// times its scale; "" if it has, or a size isn't known. The first one itself has the size that annotations
// say.
std::string other_size(const Program& program, size_t input, Size size, Size first);

// Makes rows in one thread, each input by itself. No input waits for the side arena while it holds a part of
// it, except for the file that `read` or `admit` has counted.
class RowMaker {
  public:
    // `words`: the heartbeat of a thread that isn't a pool's; null for those of a pool.
    explicit RowMaker(SideArena& side, Words* words = nullptr) : side_(side), part_(side), words_(words) {}

    // Makes what the heads of an input write. `pillow` decodes what native code doesn't; null leaves it for
    // later, as Kind::foreign.
    Outcome make(const Program& program, size_t input, const InputData& data, const Row& row,
                 Fallback* pillow = nullptr);

    // Makes a row of several frames. It isn't counted, since its frames were.
    Outcome compose(const Composer& composer, std::span<const ImageFrame* const> frames,
                    const PastedShapes& pasted, size_t number, const Row& row);

    // Makes a row of each of some encoded samples, with one input. Returns an error message for each, "" if
    // it was made. `number(i)`: of a row, for the heartbeat, which says when each begins.
    struct Sample {
        std::span<const uint8_t> bytes;
        Row row;
        int64_t number;
    };
    std::vector<std::string> make_many(const Program& program, std::span<const Sample> samples,
                                       Fallback& pillow);

    // Reads a file. The side arena counts it until `release` if it is larger than `free_bytes`.
    ReadResult read(Reader& reader, const FileRange& range, uint64_t free_bytes);
    // Waits for the memory of a file that other code has read; see `read`. Returns false if it doesn't fit.
    bool admit(uint64_t bytes, uint64_t free_bytes);
    // Returns the memory of the files, once none of it is in use any more.
    void release() noexcept { part_.release(); }

    // Memory for a row between two programs, until the next call. It stays with the maker.
    uint8_t* room(size_t bytes);

    const RowCounts& counts() const noexcept { return counts_; }
    Size size() const noexcept { return size_; }  // of the last input before all stages; {0, 0}: unknown

  private:
    Outcome by_pillow(const Program& program, size_t input, const Encoded& data, const Row& row,
                      Fallback& pillow);
    std::string reserve(const Program& program, size_t input, Size size, const Row& row, uint64_t bytes);

    SideArena& side_;
    SideArena::Part part_;
    Words* const words_;
    InputMaker inputs_;
    RowCounts counts_;
    Size size_;
    std::vector<uint8_t> between_;
    ComposeMemory composed_;
};

}  // namespace standpipe
