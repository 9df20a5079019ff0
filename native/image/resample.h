// An antialiased, separable resize that takes its rows one by one and keeps only the filter's window of them.
#pragma once

#include <cstdint>
#include <vector>

#include "simd/channels.h"
#include "simd/filters.h"
#include "simd/simd.h"

namespace standpipe {

// A rectangle of source pixels: [x0, x1) × [y0, y1).
struct Region {
    int x0 = 0, y0 = 0, x1 = 0, y1 = 0;

    int width() const noexcept { return x1 - x0; }
    int height() const noexcept { return y1 - y0; }
    bool empty() const noexcept { return x1 <= x0 || y1 <= y0; }
};

// One colour around the source, which may be mirrored: the picture that is resized in the source's place.
struct Surround {
    bool is_there = false, mirror = false;
    int left = 0, top = 0, width = 0, height = 0;  // of the source in the picture
    Colour colour{};
};

// The resampling of one image: a box of the source is resized, and a window of the result is wanted.
struct Geometry {
    Filter filter = Filter::bilinear;
    bool mirror = false;
    AxisResize x, y;
    bool resize_x = false, resize_y = false;  // false: outputs are the source's own pixels
    bool vertical_first = false;
    Surround surround;

    // OpenCV's: rows between the passes have numbers of 16 bits, and both passes take place.
    bool is_linear() const noexcept { return filter == Filter::opencv_bilinear; }
};

// Takes finished rows: `row` is called for output rows 0, 1, … with geometry.x.count pixels each.
class RowSink {
  public:
    virtual ~RowSink() = default;
    virtual void row(int y, const uint8_t* pixels) noexcept = 0;
};

class Resampler {
  public:
    // Returns an upper bound of the bytes that this geometry makes it allocate: rows and weights.
    static size_t scratch_bytes(const Geometry& geometry, int channels) noexcept;

    // `channels`: bytes of a pixel.
    void begin(const Kernels& kernels, const Geometry& geometry, int channels, RowSink& sink);

    int channels() const noexcept { return channels_; }

    // The source pixels that are needed; rows are pushed for y in [y0, y1), in order.
    Region region() const noexcept { return source_; }

    // The next `count` rows, from column region().x0 on; kSlack bytes behind each may be read. The horizontal
    // pass takes two at a time: a single one costs as much.
    void push(const uint8_t* const* rows, int count) noexcept;

    // Begins again: the same rows are pushed from the first one on.
    void restart() noexcept {
        next_in_ = framed_ = region_.y0;
        next_source_ = source_.y0;
        next_out_ = held_ = 0;
    }

    // Frees all memory if it is more than `keep_bytes`, as after an unusually large image.
    void shrink(size_t keep_bytes);

  private:
    template <typename Visit>
    void each_buffer(Visit visit) {
        for (auto* rows : {&ring_, &lines_, &across_, &frames_}) visit(*rows);
        for (AxisWeights* axis : {&x_weights_, &y_weights_}) {
            for (auto* column : {&axis->start, &axis->length, &axis->weight}) visit(*column);
            visit(axis->scratch);
        }
        for (auto* column : {&plan_.start, &plan_.weight}) visit(*column);
        visit(plan_.split);
        visit(window_);
    }

    void place_source();
    void frame(const uint8_t* row) noexcept;
    void push_some(const uint8_t* const* rows, int count) noexcept;
    void finish_rows() noexcept;
    const uint8_t* down(int y, uint8_t* line) noexcept;
    void across(const uint8_t** rows, uint8_t* const* out, int count) noexcept;
    void emit_across(const uint8_t* const* rows, int count) noexcept;
    void emit(const uint8_t* pixels) noexcept;
    uint8_t* ring_row(int y) noexcept {
        return ring_.data() + static_cast<size_t>(y & ring_mask_) * row_stride_;
    }

    const Kernels* kernels_ = nullptr;
    Geometry geometry_;
    int channels_ = 3;
    RowSink* sink_ = nullptr;
    Region region_;  // of the picture that is resized
    Region source_;
    AxisWeights x_weights_, y_weights_;
    HorizontalPlan plan_;
    AlignedVector<uint8_t> ring_, lines_, across_;  // lines_: of the vertical pass, across_: of the other
    AlignedVector<uint8_t> frames_;  // two rows with what surrounds the source, and one of that alone
    std::vector<const uint8_t*> window_;
    bool is_linear_ = false;  // both passes are those of OpenCV's bilinear resize
    size_t row_bytes_ = 0, row_stride_ = 0, across_stride_ = 0;  // rows: of ring_ and lines_
    int ring_mask_ = 0, next_in_ = 0, next_out_ = 0;
    int next_source_ = 0, framed_ = 0;  // the next rows of the source, and of the picture around it
    int held_ = 0;  // lines that wait for a second one, to go through the horizontal pass with it
};

}  // namespace standpipe
