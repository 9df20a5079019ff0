#include "image/resample.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include "simd/channels.h"

namespace standpipe {
namespace {

void mirror_pixels(const Kernels& kernels, const uint8_t* pixels, int width, int channels,
                   uint8_t* out) noexcept {
    if (channels == 3) return kernels.mirror(pixels, width, out);
    with_channels(channels, [&](auto bytes) {
        for (size_t x = 0, last = static_cast<size_t>(width) - 1; x <= last; ++x)
            std::memcpy(out + bytes * x, pixels + bytes * (last - x), bytes);
    });
}

// An axis that isn't resized: the window's own pixels.
void identity(const AxisResize& axis, AxisWeights& out) {
    out.taps = 1;
    out.start.resize(static_cast<size_t>(axis.count));
    for (int i = 0; i < axis.count; ++i)
        out.start[static_cast<size_t>(i)] = static_cast<int>(axis.low) + axis.first + i;
    out.length.assign(static_cast<size_t>(axis.count), 1);
    out.weight.assign(static_cast<size_t>(axis.count), 1 << kWeightBits);
}

// Along rows, an output of a single pixel is that pixel in OpenCV. Along columns it rounds a sum.
void keep_one_weight(AxisWeights& axis) {
    for (size_t i = 0; i < axis.length.size(); ++i)
        if (axis.length[i] == 1) axis.weight[2 * i] = 1 << kLinearBits, axis.weight[2 * i + 1] = 0;
}

// Of compute_weights: start and length, and for each tap its weight and eight bytes of scratch (and two more
// taps).
size_t weight_bytes(const AxisResize& axis, size_t taps) noexcept {
    return static_cast<size_t>(axis.count) * (8 + 4 * taps + 8 * (taps + 2));
}

// Start, the weights, and for each pair of taps both halves; whole groups.
size_t plan_bytes(size_t width, size_t taps, int channels) noexcept {
    const size_t least = (taps + 1) / 2, pairs = channels == 1 ? least + kGroup - 1 : least;
    return (width + kGroup) * (4 + 4 * taps + 8 * pairs);
}

// Rows come in twos, so the window and one more. A power of two, so that a row's place in the ring is found
// without a division.
size_t ring_rows(size_t window) noexcept { return std::bit_ceil(window + 1); }

}  // namespace

size_t Resampler::scratch_bytes(const Geometry& g, int channels) noexcept {
    const auto bytes = static_cast<size_t>(channels);
    const size_t in = whole_lines(bytes * static_cast<size_t>(g.x.clip_high - g.x.clip_low)) + kSlack;
    const size_t out = whole_lines(bytes * static_cast<size_t>(g.x.count)) + kSlack;
    const size_t taps = g.resize_x ? static_cast<size_t>(max_taps(g.filter, g.x)) : 1;
    const size_t window = g.resize_y ? static_cast<size_t>(max_taps(g.filter, g.y)) : 1;
    const size_t row = g.is_linear() ? 2 * out : g.vertical_first ? in : out;
    const size_t ring = ring_rows(window) * (row + sizeof(uint8_t*));
    const size_t frames = g.surround.is_there ? 3 * in : 0;
    return ring + frames + 2 * row + 2 * out + weight_bytes(g.x, taps) + weight_bytes(g.y, window) +
           plan_bytes(static_cast<size_t>(g.x.count), taps, channels);
}

void Resampler::begin(const Kernels& kernels, const Geometry& geometry, int channels, RowSink& sink) {
    kernels_ = &kernels;
    channels_ = channels;
    geometry_ = geometry;
    sink_ = &sink;
    if (geometry.resize_x) compute_weights(geometry.filter, geometry.x, x_weights_);
    else identity(geometry.x, x_weights_);
    is_linear_ = geometry.is_linear() && geometry.resize_x;
    if (is_linear_) keep_one_weight(x_weights_);
    if (geometry.resize_y) compute_weights(geometry.filter, geometry.y, y_weights_);
    else identity(geometry.y, y_weights_);
    region_ = {x_weights_.begin(), y_weights_.begin(), x_weights_.end(), y_weights_.end()};
    place_source();
    if (geometry.resize_x)
        plan_.prepare(x_weights_, region_.x0, region_.width(), channels, geometry.mirror,
                      kernels_->splits && !is_linear_);

    const auto pixel = static_cast<size_t>(channels);
    const size_t in_bytes = pixel * static_cast<size_t>(region_.width());
    const size_t out_bytes = pixel * static_cast<size_t>(geometry.x.count);
    row_bytes_ = is_linear_ ? sizeof(int16_t) * out_bytes : geometry.vertical_first ? in_bytes : out_bytes;
    row_stride_ = whole_lines(row_bytes_) + kSlack;
    across_stride_ = whole_lines(out_bytes) + kSlack;
    const size_t rows = ring_rows(static_cast<size_t>(y_weights_.taps));
    ring_mask_ = static_cast<int>(rows) - 1;
    refit(ring_, row_stride_ * rows);
    refit(window_, rows);
    refit(lines_, 2 * row_stride_);
    refit(across_, 2 * across_stride_);
    restart();
}

// Finds the pixels of the source that are in the region: at least one, though it may be unused.
void Resampler::place_source() {
    const Surround& around = geometry_.surround;
    source_ = region_;
    if (!around.is_there) return;
    const auto part = [](int& from, int& to, int at, int length) {
        from = std::clamp(from - at, 0, length - 1);
        to = std::clamp(to - at, from + 1, length);
    };
    part(source_.x0, source_.x1, around.left, around.width);
    part(source_.y0, source_.y1, around.top, around.height);
    if (around.mirror)
        source_ = {around.width - source_.x1, source_.y0, around.width - source_.x0, source_.y1};
    const auto pixel = static_cast<size_t>(channels_), width = static_cast<size_t>(region_.width());
    refit(frames_, 3 * (whole_lines(pixel * width) + kSlack));
    for (size_t row = 0; row < 3; ++row)
        for (size_t i = 0; i < pixel * width; ++i)
            frames_[row * frames_.size() / 3 + i] = around.colour[i % pixel];
}

// Adds a row of the picture around the source: a row of the source, or null for one that has none.
void Resampler::frame(const uint8_t* row) noexcept {
    const Surround& around = geometry_.surround;
    const auto pixel = static_cast<size_t>(channels_), stride = frames_.size() / 3;
    const int begin = around.mirror ? around.width - source_.x1 : source_.x0;
    const int at = around.left + begin - region_.x0;
    uint8_t* const frames[2] = {frames_.data(), frames_.data() + stride};
    const int held = (framed_ - region_.y0) % 2;
    if (at >= 0 && at + source_.width() <= region_.width()) {
        uint8_t* const to = frames[held] + pixel * static_cast<size_t>(at);
        if (!row) std::memcpy(to, frames_.data() + 2 * stride, pixel * static_cast<size_t>(source_.width()));
        else if (around.mirror) mirror_pixels(*kernels_, row, source_.width(), channels_, to);
        else std::memcpy(to, row, pixel * static_cast<size_t>(source_.width()));
    }
    if (++framed_ == region_.y1 || held == 1) push_some(frames, held + 1);
}

void Resampler::push(const uint8_t* const* rows, int count) noexcept {
    if (geometry_.surround.is_there) {
        for (int i = 0; i < count; ++i) {
            const int y = geometry_.surround.top + next_source_++;
            while (framed_ < std::min(y, region_.y1)) frame(nullptr);
            if (framed_ == y && y < region_.y1) frame(rows[i]);
            while (next_source_ == source_.y1 && framed_ < region_.y1) frame(nullptr);
        }
        return;
    }
    for (int i = 0; i < count; i += 2) push_some(rows + i, std::min(count - i, 2));
}

void Resampler::push_some(const uint8_t* const* rows, int count) noexcept {
    if (!geometry_.resize_y) return emit_across(rows, count);
    const uint8_t* from[2] = {rows[0], rows[count - 1]};
    uint8_t* const kept[2] = {ring_row(next_in_), ring_row(next_in_ + count - 1)};
    if (is_linear_) {
        for (int i = 0; i < count; ++i)
            kernels_->linear_across(from[i], plan_.pass(), reinterpret_cast<int16_t*>(kept[i]));
        next_in_ += count;
        return finish_rows();
    }
    if (!geometry_.vertical_first) across(from, kept, count);
    for (int i = 0; i < count; ++i)
        if (from[i] != kept[i]) std::memcpy(kept[i], from[i], row_bytes_);
    next_in_ += count;
    finish_rows();
}

// Every output whose last source row is in the ring.
void Resampler::finish_rows() noexcept {
    const int count = geometry_.y.count;
    for (int y = next_out_ + held_; y < count; ++y) {
        const auto i = static_cast<size_t>(y);
        if (y_weights_.start[i] + y_weights_.length[i] > next_in_) return;
        uint8_t* line = lines_.data() + static_cast<size_t>(held_) * row_stride_;
        const uint8_t* row = down(y, line);
        if (!geometry_.vertical_first) {
            emit(row);
            continue;
        }
        if (row != line)
            std::memcpy(line, row, row_bytes_);  // the ring may lose it before it has a second one
        if (++held_ < 2 && y + 1 < count) continue;
        const uint8_t* const lines[2] = {lines_.data(), lines_.data() + row_stride_};
        emit_across(lines, std::exchange(held_, 0));
    }
}

// The vertical pass: output row y of those in the ring, in `line` or where it lies already.
const uint8_t* Resampler::down(int y, uint8_t* line) noexcept {
    const auto i = static_cast<size_t>(y);
    const int start = y_weights_.start[i], length = y_weights_.length[i];
    const int32_t* weight = &y_weights_.weight[i * static_cast<size_t>(y_weights_.taps)];
    if (is_linear_) {
        const auto row = [&](int at) { return reinterpret_cast<const int16_t*>(ring_row(at)); };
        linear_down(row(start), row(start + length - 1), weight[0], weight[1], row_bytes_ / sizeof(int16_t),
                    line);
        return line;
    }
    if (length == 1 && weight[0] == 1 << kWeightBits) return ring_row(start);
    for (int t = 0; t < length; ++t) window_[static_cast<size_t>(t)] = ring_row(start + t);
    kernels_->vertical(window_.data(), weight, length, row_bytes_, line);
    return line;
}

// The horizontal pass of one or two rows, or what stands for it: nothing, or a mirror. `rows` become those in
// `out` where anything was done.
void Resampler::across(const uint8_t** rows, uint8_t* const* out, int count) noexcept {
    if (!geometry_.resize_x && !geometry_.mirror) return;
    if (geometry_.resize_x) kernels_->horizontal(rows, plan_.pass(), out);
    for (int i = 0; i < count; ++i) {
        if (!geometry_.resize_x) mirror_pixels(*kernels_, rows[i], geometry_.x.count, channels_, out[i]);
        rows[i] = out[i];
    }
}

void Resampler::emit_across(const uint8_t* const* rows, int count) noexcept {
    const uint8_t* done[2] = {rows[0], rows[count - 1]};
    uint8_t* const out[2] = {across_.data(), across_.data() + across_stride_};
    across(done, out, count);
    for (int i = 0; i < count; ++i) emit(done[i]);
}

void Resampler::emit(const uint8_t* pixels) noexcept { sink_->row(next_out_++, pixels); }

void Resampler::shrink(size_t keep_bytes) {
    size_t bytes = 0;
    each_buffer([&](const auto& buffer) { bytes += buffer.capacity() * sizeof(buffer[0]); });
    if (bytes > keep_bytes)
        each_buffer([](auto& buffer) { std::remove_reference_t<decltype(buffer)>().swap(buffer); });
}

}  // namespace standpipe
