// Takes rows of pixels while a row of the slot is made: into pictures, into the slot, or on to resamplers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "image/rows.h"

namespace standpipe {

// Puts an inner picture's rows into a larger one: the border has one colour, or goes on as the mode says.
class Frame : public RowSink {
  public:
    void row(int y, const uint8_t* pixels) noexcept final {
        if (hidden_) return;
        if (!columns_.empty()) {
            with_channels(channels_, [&](auto bytes) {
                for (size_t x = 0; x < columns_.size(); ++x)
                    std::memcpy(line_.data() + bytes * x, pixels + bytes * static_cast<size_t>(columns_[x]),
                                bytes);
            });
            pixels = line_.data();
        } else if (padded_) {
            std::memcpy(line_.data() + bytes_of(left_), pixels, bytes_of(inner_width_));
            pixels = line_.data();
        }
        if (first_.empty()) return write(top_ + y, pixels);
        for (int to = first_[static_cast<size_t>(y)]; to >= 0; to = next_[static_cast<size_t>(to)])
            write(to, pixels);
    }

  protected:
    void frame(const SampleGeometry& geometry, int channels) {
        const AxisResize &x = geometry.resample.x, &y = geometry.resample.y;
        channels_ = channels;
        top_ = geometry.pad_top;
        left_ = geometry.pad_left;
        inner_width_ = x.count;
        hidden_ = geometry.hidden;
        columns_.clear();
        first_.clear();
        padded_ = hidden_ || x.count != geometry.out.width;
        const bool rows_missing = hidden_ || y.count != geometry.out.height;
        if (geometry.mode != PadMode::constant) return continue_picture(geometry);
        if (padded_ || rows_missing) fill_line(geometry);
        if (!rows_missing) return;
        for (int i = 0; i < geometry.out.height; ++i)
            if (hidden_ || i < top_ || i >= top_ + y.count) write(i, line_.data());
    }

    virtual void write(int y, const uint8_t* pixels) noexcept = 0;

    // Returns the bytes of so many pixels.
    size_t bytes_of(int pixels) const noexcept {
        return static_cast<size_t>(channels_) * static_cast<size_t>(pixels);
    }

  private:
    void fill_line(const SampleGeometry& geometry) {
        const size_t bytes = bytes_of(geometry.out.width);
        line_.assign(bytes + kSlack, 0);
        if (geometry.fill == Colour{}) return;
        for (size_t i = 0; i < bytes; ++i) line_[i] = geometry.fill[i % static_cast<size_t>(channels_)];
    }

    // Finds the inner picture's column of each column, and the rows that each of its rows becomes.
    void continue_picture(const SampleGeometry& geometry) {
        const WindowSpan &x = geometry.x, &y = geometry.y;
        const int width = geometry.out.width, height = geometry.out.height;
        const auto leaves = [](const WindowSpan& span, int wanted) {
            return span.offset < 0 || span.offset + wanted > span.length;
        };
        if (leaves(x, width)) {
            line_.assign(bytes_of(width) + kSlack, 0);
            columns_.resize(static_cast<size_t>(width));
            for (int i = 0; i < width; ++i) {
                const int from = inside(geometry.mode, x.offset + i, x.length) - x.first;
                const bool mirror = geometry.resample.mirror;
                columns_[static_cast<size_t>(mirror ? width - 1 - i : i)] =
                    mirror ? x.count - 1 - from : from;
            }
        }
        if (!leaves(y, height)) return;
        first_.assign(static_cast<size_t>(y.count), -1);
        next_.resize(static_cast<size_t>(height));
        for (int i = 0; i < height; ++i) {
            int& first = first_[static_cast<size_t>(inside(geometry.mode, y.offset + i, y.length) - y.first)];
            next_[static_cast<size_t>(i)] = first;
            first = i;
        }
    }

    bool padded_ = false, hidden_ = false;
    int channels_ = 3, top_ = 0, left_ = 0, inner_width_ = 0;
    std::vector<uint8_t> line_;
    std::vector<int> columns_;  // empty: one after another
    std::vector<int> first_,
        next_;  // the rows that a row becomes, as lists that end with -1; empty: one each
};

// A picture between two passes.
class Picture final : public Frame {
  public:
    // `bytes`: the most that stages make of it.
    void begin(const SampleGeometry& geometry, int of_pixels, size_t bytes) {
        size = geometry.out;
        channels = of_pixels;
        refit(pixels, bytes + kSlack);
        frame(geometry, channels);
    }

    Size size;         // a stage may change it
    int channels = 3;  // a stage may take some away
    std::vector<uint8_t> pixels;

  private:
    void write(int y, const uint8_t* row) noexcept override {
        const size_t stride = bytes_of(size.width);
        std::memcpy(pixels.data() + static_cast<size_t>(y) * stride, row, stride);
    }
};

// The slot's own layout and element type.
class SlotRow final : public Frame {
  public:
    // `waiting`: what each channel's bytes become before all else, or null; for formats that have tables.
    void begin(const Kernels& kernels, const RowFormat& format, const SampleGeometry& geometry,
               const ByteTables* waiting, const RowArea& out) {
        kernels_ = &kernels;
        format_ = &format;
        if (waiting) {
            format_ = &joined_;
            joined_ = format;
            for (size_t c = 0; c < static_cast<size_t>(format.channels); ++c)
                for (size_t value = 0; value < 256; ++value) {
                    joined_.f32[c][value] = format.f32[c][(*waiting)[c][value]];
                    joined_.f16[c][value] = format.f16[c][(*waiting)[c][value]];
                }
        }
        out_ = out;
        plane_stride_ = whole_lines(static_cast<size_t>(out.picture.width)) + kSlack;
        if (format.planar) planes_.resize(static_cast<size_t>(format.channels) * plane_stride_);
        pad();
        frame(geometry, format.channels);
    }

  private:
    void write(int y, const uint8_t* pixels) noexcept override {
        const RowFormat& f = *format_;
        const size_t line = static_cast<size_t>(y) * static_cast<size_t>(out_.canvas.width),
                     plane = static_cast<size_t>(out_.canvas.height) * static_cast<size_t>(out_.canvas.width);
        if (f.channels == 1) return write_plane(pixels, 0, line);
        if (!f.planar)
            return write_interleaved(pixels,
                                     out_.first + static_cast<size_t>(f.channels) * line * f.element_bytes());
        uint8_t* planes[kMostChannels];
        for (size_t c = 0; c < kMostChannels; ++c) planes[c] = planes_.data() + c * plane_stride_;
        kernels_->separate(pixels, out_.picture.width, f.channels, planes);
        for (size_t c = 0; c < static_cast<size_t>(f.channels); ++c)
            write_plane(planes[c], c, line + c * plane);
    }

    // `at`: the first element of the plane's row.
    void write_plane(const uint8_t* bytes, size_t channel, size_t at) const noexcept {
        const RowFormat& f = *format_;
        const int width = out_.picture.width;
        uint8_t* const out = out_.first + at * f.element_bytes();
        switch (f.type) {
            case ElementType::u8: std::memcpy(out, bytes, static_cast<size_t>(width)); return;
            case ElementType::f16:
                return kernels_->look_up_f16(bytes, width, f.f16[channel].data(),
                                             reinterpret_cast<uint16_t*>(out));
            case ElementType::f32:
                return kernels_->look_up_f32(bytes, width, f.f32[channel].data(),
                                             reinterpret_cast<float*>(out));
        }
    }

    // Fills what is right of the picture and below it.
    void pad() const noexcept {
        const Size picture = out_.picture, canvas = out_.canvas;
        if (picture == canvas) return;
        const RowFormat& f = *format_;
        const int planes = f.planar ? f.channels : 1;
        const size_t pixel = f.element_bytes() * static_cast<size_t>(f.planar ? 1 : f.channels),
                     line = pixel * static_cast<size_t>(canvas.width),
                     used = pixel * static_cast<size_t>(picture.width);
        const size_t below = line * static_cast<size_t>(canvas.height - picture.height);
        uint8_t* next = out_.first;
        for (int plane = 0; plane < planes; ++plane, next += below) {
            for (int y = 0; y < picture.height; ++y, next += line) fill(next + used, line - used, pixel);
            fill(next, below, pixel);
        }
    }

    // Repeats the padding's first `pixel` bytes.
    void fill(uint8_t* out, size_t bytes, size_t pixel) const noexcept {
        const uint8_t* const from = format_->padding.data();
        if (bytes == 0) return;
        if (std::all_of(from, from + pixel, [&](uint8_t each) { return each == *from; })) {
            std::memset(out, *from, bytes);
            return;
        }
        std::memcpy(out, from, pixel);
        for (size_t done = pixel; done < bytes; done *= 2)
            std::memcpy(out + done, out, std::min(done, bytes - done));
    }

    void write_interleaved(const uint8_t* pixels, uint8_t* out) const noexcept {
        const size_t bytes = bytes_of(out_.picture.width);
        const auto each = [&](const auto& tables, auto* to) {
            with_channels(format_->channels, [&](auto channels) {
                for (size_t i = 0; i < bytes; i += channels)
                    for (size_t c = 0; c < channels; ++c) to[i + c] = tables[c][pixels[i + c]];
            });
        };
        switch (format_->type) {
            case ElementType::u8: std::memcpy(out, pixels, bytes); return;
            case ElementType::f16: return each(format_->f16, reinterpret_cast<uint16_t*>(out));
            case ElementType::f32: return each(format_->f32, reinterpret_cast<float*>(out));
        }
    }

    AlignedVector<uint8_t> planes_;
    size_t plane_stride_ = 0;
    const Kernels* kernels_ = nullptr;
    const RowFormat* format_ = nullptr;
    RowFormat joined_;  // the format with the tables that waited
    RowArea out_;
};

// The smallest region that contains those of all resamplers.
inline Region united(std::span<Resampler* const> resamplers) noexcept {
    Region all;
    for (const Resampler* resampler : resamplers) {
        const Region one = resampler->region();
        if (one.empty()) continue;
        if (all.empty()) all = one;
        all = {std::min(all.x0, one.x0), std::min(all.y0, one.y0), std::max(all.x1, one.x1),
               std::max(all.y1, one.y1)};
    }
    return all;
}

// Gives rows of a region to several resamplers, to each the part that it needs.
class IntoResamplers final : public PixelSink {
  public:
    IntoResamplers(std::span<Resampler* const> resamplers, const Region& region)
        : resamplers_(resamplers), region_(region), y_(region.y0) {}

    void pixels(const uint8_t* const* rows, int count) noexcept override {
        for (Resampler* resampler : resamplers_) {
            const Region part = resampler->region();
            const int first = std::max(part.y0, y_), stop = std::min(part.y1, y_ + count);
            const auto left = static_cast<size_t>(resampler->channels() * (part.x0 - region_.x0));
            for (int y = first; y < stop; y += 2) {
                const uint8_t* const some[2] = {rows[y - y_] + left,
                                                rows[std::min(y + 1, stop - 1) - y_] + left};
                resampler->push(some, std::min(stop - y, 2));
            }
        }
        y_ += count;
    }

    void restart() noexcept override {
        y_ = region_.y0;
        for (Resampler* resampler : resamplers_) resampler->restart();
    }

  private:
    std::span<Resampler* const> resamplers_;
    const Region region_;
    int y_;  // the next row
};

}  // namespace standpipe
