#include "resample.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

namespace penstock {
namespace {

void mirror_pixels(const uint8_t* rgb, int width, uint8_t* out) noexcept {
    for (int x = 0; x < width; ++x) std::memcpy(out + 3 * x, rgb + 3 * (width - 1 - x), 3);
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

}  // namespace

namespace {

// Of compute_weights: start and length, and for each tap its weight and eight bytes of scratch (and two more
// taps).
size_t weight_bytes(const AxisResize& axis, size_t taps) noexcept {
    return static_cast<size_t>(axis.count) * (8 + 4 * taps + 8 * (taps + 2));
}

// Start twice, the weights, and for each pair of taps both halves four times over; whole groups.
size_t plan_bytes(size_t width, size_t taps) noexcept {
    return (width + kGroup) * (8 + 4 * taps + 32 * ((taps + 1) / 2));
}

}  // namespace

size_t Resampler::scratch_bytes(const Geometry& g) noexcept {
    const size_t in = whole_lines(3 * static_cast<size_t>(g.x.clip_high - g.x.clip_low)) + kSlack;
    const size_t out = whole_lines(3 * static_cast<size_t>(g.x.count)) + kSlack;
    const size_t taps = g.resize_x ? static_cast<size_t>(max_taps(g.filter, g.x)) : 1;
    const size_t window = g.resize_y ? static_cast<size_t>(max_taps(g.filter, g.y)) : 1;
    const size_t ring = std::bit_ceil(window) * ((g.vertical_first ? in : out) + sizeof(uint8_t*));
    return ring + in + 2 * out + weight_bytes(g.x, taps) + weight_bytes(g.y, window) +
           plan_bytes(static_cast<size_t>(g.x.count), taps);
}

void Resampler::begin(const Kernels& kernels, const Geometry& geometry, RowSink& sink) {
    kernels_ = &kernels;
    geometry_ = geometry;
    sink_ = &sink;
    if (geometry.resize_x) compute_weights(geometry.filter, geometry.x, x_weights_);
    else identity(geometry.x, x_weights_);
    if (geometry.resize_y) compute_weights(geometry.filter, geometry.y, y_weights_);
    else identity(geometry.y, y_weights_);
    region_ = {x_weights_.begin(), y_weights_.begin(), x_weights_.end(), y_weights_.end()};
    if (geometry.resize_x)
        plan_.prepare(x_weights_, region_.x0, region_.width(), geometry.mirror, kernels_->order);

    const size_t in_bytes = 3 * static_cast<size_t>(region_.width());
    const size_t out_bytes = 3 * static_cast<size_t>(geometry.x.count);
    row_bytes_ = geometry.vertical_first ? in_bytes : out_bytes;
    ring_stride_ = whole_lines(row_bytes_) + kSlack;
    // A power of two, so that a row's place in the ring is found without a division.
    const auto ring_rows =
        std::bit_ceil(static_cast<unsigned>(geometry.resize_y ? std::max(y_weights_.taps, 1) : 1));
    ring_mask_ = static_cast<int>(ring_rows) - 1;
    ring_.resize(ring_stride_ * ring_rows);
    window_.resize(ring_rows);
    line_.resize(std::max(in_bytes, out_bytes) + kSlack);
    across_.resize(out_bytes + kSlack);
    next_in_ = region_.y0;
    next_out_ = 0;
}

// The horizontal pass, or what stands for it: nothing, or a mirror.
const uint8_t* Resampler::across(const uint8_t* rgb, uint8_t* out) noexcept {
    if (geometry_.resize_x) kernels_->horizontal(rgb, plan_, out);
    else if (geometry_.mirror) mirror_pixels(rgb, geometry_.x.count, out);
    else return rgb;
    return out;
}

void Resampler::push(const uint8_t* rgb) noexcept {
    const int y = next_in_++;
    if (!geometry_.resize_y) return emit(across(rgb, across_.data()));
    uint8_t* kept = ring_row(y);
    const uint8_t* row = geometry_.vertical_first ? rgb : across(rgb, kept);
    if (row != kept) std::memcpy(kept, row, row_bytes_);
    finish_rows();
}

// Every output whose last source row is in the ring.
void Resampler::finish_rows() noexcept {
    for (; next_out_ < geometry_.y.count;) {
        const auto i = static_cast<size_t>(next_out_);
        const int start = y_weights_.start[i], length = y_weights_.length[i];
        if (start + length > next_in_) return;
        const uint8_t* row = ring_row(start);
        const int32_t* weight = &y_weights_.weight[i * static_cast<size_t>(y_weights_.taps)];
        if (length != 1 || weight[0] != 1 << kWeightBits) {
            for (int t = 0; t < length; ++t) window_[static_cast<size_t>(t)] = ring_row(start + t);
            kernels_->vertical(window_.data(), weight, length, row_bytes_, line_.data());
            row = line_.data();
        }
        emit(geometry_.vertical_first ? across(row, across_.data()) : row);
    }
}

void Resampler::emit(const uint8_t* rgb) noexcept { sink_->row(next_out_++, rgb); }

void Resampler::shrink(size_t keep_bytes) {
    size_t bytes = 0;
    each_buffer([&](const auto& buffer) { bytes += buffer.capacity() * sizeof(buffer[0]); });
    if (bytes > keep_bytes)
        each_buffer([](auto& buffer) { std::remove_reference_t<decltype(buffer)>().swap(buffer); });
}

}  // namespace penstock
