// Rows made of several images: each image is made by itself, as a frame, and then they are put together.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "image/rows.h"
#include "pixels/pixels.h"

namespace standpipe {

// An image in memory: (height, width, 3) bytes, and kSlack bytes behind them.
struct ImageFrame : std::enable_shared_from_this<ImageFrame> {
    Size size;
    size_t capacity = 0;
    std::unique_ptr<uint8_t[]> pixels;
};

// Gives out frames, and keeps the memory of those that nobody has any more for the next ones.
class FrameStore : public std::enable_shared_from_this<FrameStore> {
  public:
    explicit FrameStore(size_t usual_bytes) : usual_bytes_(usual_bytes) {}
    std::shared_ptr<ImageFrame> take(Size size);
    uint64_t bytes() const noexcept { return bytes_; }

  private:
    const size_t usual_bytes_;  // of a frame's memory, which is more if that is too little
    std::mutex mutex_;
    std::atomic<uint64_t> bytes_{0};
    std::vector<std::unique_ptr<ImageFrame>> free_;
};

// Puts several pictures together.
struct Composition {
    enum class Kind : uint8_t { mosaic, mix_up, paste, paste_mirrored };

    Kind kind = Kind::mosaic;
    uint32_t op = 0;  // part of the key of its random numbers
    double p = 1;     // else the first picture stays alone
    Size size;        // mosaic: of a quarter of the canvas
    Colour fill{};
    double alpha = 1;  // mix_up: both parameters of the beta distribution

    size_t pictures() const noexcept {
        return kind == Kind::mosaic ? 4 : kind == Kind::paste_mirrored ? 1 : 2;
    }
    bool pastes() const noexcept { return kind == Kind::paste || kind == Kind::paste_mirrored; }
};

// The outlines of what is pasted on pictures, in pixels of the pictures that it is taken from: a number of
// shapes for each picture that a composition makes, in order, row after row.
struct PastedShapes {
    std::vector<float> points;
    std::vector<int64_t> ends;
    std::vector<int64_t> pictures;  // end of each one's shapes
};

// Memory for making rows, which stays with its thread.
struct ComposeMemory {
    struct OfLevel {
        std::vector<uint8_t> canvas, other;
        std::array<std::vector<uint8_t>, 4> results;
    };
    std::vector<OfLevel> levels;
    std::vector<uint8_t> work;  // of pixel stages
};

// Makes a row of frames: compositions one after another, with transforms behind each. The first composition
// puts frames together, the next one pictures that this made, and so on. A row's own frame is the first; the
// others are its partners'.
class Composer : public std::enable_shared_from_this<Composer> {
  public:
    struct Level {
        Composition how;
        std::shared_ptr<const Program> after;  // has one input and one head
    };

    // `levels`: each program but the last one makes (height, width, 3) bytes.
    explicit Composer(std::vector<Level> levels);

    // Returns the number of frames of which a row is made, if all compositions take place.
    size_t frames() const noexcept { return frames_.back(); }
    const std::shared_ptr<const Program>& last() const noexcept { return levels_.back().after; }

    // Sets which frames the row of a key is made of, and a random word for the choice of each.
    void draw(const SampleKey& key, std::span<uint8_t> used, std::span<uint64_t> words) const noexcept;

    // Sets the moves of each frame's pixels to the pictures behind the first `levels` ones, without the
    // pixels; none for frames that aren't used. `mirrored`: those of what is pasted mirrored. `areas`: of
    // each picture, where the other one is pasted on it, which is cut off there; empty: it isn't cut off.
    void trace(std::span<const Size> sizes, const SampleKey& key, size_t levels, bool mirrored,
               std::span<const Box> areas, std::span<std::vector<Move>> moves) const;

    size_t levels() const noexcept { return levels_.size(); }

    // Returns the number of pictures of a row on which something is pasted, if all compositions take place.
    size_t pasted_pictures() const noexcept;

    // Makes row number `row` of a job. Frames that aren't used may be null.
    Outcome make(InputMaker& maker, SideArena::Part& part, ComposeMemory& memory,
                 std::span<const ImageFrame* const> frames, const PastedShapes& pasted, size_t row,
                 const SampleKey& key, const RowPlace& out) const;

    // The bytes of ComposeMemory for frames of at most this size.
    uint64_t memory_bytes(Size most) const noexcept;

  private:
    struct Making;
    struct Split {
        std::vector<PixelStage> in_place;  // of the first pass, on the composed picture itself
        bool warps = false;                // the first of them is a warp that gives a size
        std::shared_ptr<Program> rest;
    };

    Size trace(size_t level, size_t first, std::span<const Size> sizes, const SampleKey& key, bool mirrored,
               std::span<const Box> areas, std::span<std::vector<Move>> moves) const;
    void mark(size_t level, size_t first, const SampleKey& key, std::span<uint8_t> used) const noexcept;

    std::vector<Level> levels_;
    std::vector<Split> splits_;
    std::vector<size_t> frames_;  // in front of all levels, behind the first one, and so on
};

}  // namespace standpipe
