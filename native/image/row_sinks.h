// Takes rows of pixels while a row of the slot is made: into pictures, into the slot, or on to resamplers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "image/rows.h"

namespace standpipe {

inline uint64_t picture_bytes(Size size) noexcept {
    return uint64_t{3} * static_cast<uint64_t>(size.height) * static_cast<uint64_t>(size.width) + kSlack;
}

// Puts an inner picture's rows into a larger one: the border has one colour, or goes on as the mode says.
class Frame : public RowSink {
  public:
    void row(int y, const uint8_t* rgb) noexcept final {
        if (hidden_) return;
        if (!columns_.empty()) {
            for (size_t x = 0; x < columns_.size(); ++x)
                std::memcpy(line_.data() + 3 * x, rgb + 3 * static_cast<size_t>(columns_[x]), 3);
            rgb = line_.data();
        } else if (padded_) {
            std::memcpy(line_.data() + 3 * static_cast<size_t>(left_), rgb,
                        3 * static_cast<size_t>(inner_width_));
            rgb = line_.data();
        }
        if (first_.empty()) return write(top_ + y, rgb);
        for (int to = first_[static_cast<size_t>(y)]; to >= 0; to = next_[static_cast<size_t>(to)])
            write(to, rgb);
    }

  protected:
    void frame(const SampleGeometry& geometry) {
        const AxisResize &x = geometry.resample.x, &y = geometry.resample.y;
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

    virtual void write(int y, const uint8_t* rgb) noexcept = 0;

  private:
    void fill_line(const SampleGeometry& geometry) {
        const auto width = static_cast<size_t>(geometry.out.width);
        line_.assign(3 * width + kSlack, 0);
        if (geometry.fill == std::array<uint8_t, 3>{}) return;
        for (size_t x = 0; x < width; ++x) std::memcpy(line_.data() + 3 * x, geometry.fill.data(), 3);
    }

    // Finds the inner picture's column of each column, and the rows that each of its rows becomes.
    void continue_picture(const SampleGeometry& geometry) {
        const WindowSpan &x = geometry.x, &y = geometry.y;
        const int width = geometry.out.width, height = geometry.out.height;
        const auto leaves = [](const WindowSpan& span, int wanted) {
            return span.offset < 0 || span.offset + wanted > span.length;
        };
        if (leaves(x, width)) {
            line_.assign(3 * static_cast<size_t>(width) + kSlack, 0);
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
    int top_ = 0, left_ = 0, inner_width_ = 0;
    std::vector<uint8_t> line_;
    std::vector<int> columns_;  // empty: one after another
    std::vector<int> first_,
        next_;  // the rows that a row becomes, as lists that end with -1; empty: one each
};

// A picture between two passes.
class Picture final : public Frame {
  public:
    void begin(const SampleGeometry& geometry) {
        size = geometry.out;
        stride_ = 3 * static_cast<size_t>(size.width);
        refit(pixels, picture_bytes(size));
        frame(geometry);
    }

    Size size;
    std::vector<uint8_t> pixels;

  private:
    void write(int y, const uint8_t* rgb) noexcept override {
        std::memcpy(pixels.data() + static_cast<size_t>(y) * stride_, rgb, stride_);
    }

    size_t stride_ = 0;
};

// The slot's own layout and element type.
class SlotRow final : public Frame {
  public:
    // `waiting`: what each channel's bytes become before all else, or null; for formats that have tables.
    void begin(const Kernels& kernels, const RowFormat& format, const SampleGeometry& geometry,
               const ByteTables* waiting, uint8_t* out) {
        kernels_ = &kernels;
        format_ = &format;
        if (waiting) {
            format_ = &joined_;
            joined_ = format;
            for (size_t c = 0; c < 3; ++c)
                for (size_t value = 0; value < 256; ++value) {
                    joined_.f32[c][value] = format.f32[c][(*waiting)[c][value]];
                    joined_.f16[c][value] = format.f16[c][(*waiting)[c][value]];
                }
        }
        out_ = out;
        plane_stride_ = whole_lines(static_cast<size_t>(format.width)) + kSlack;
        if (format.planar) planes_.resize(3 * plane_stride_);
        frame(geometry);
    }

  private:
    void write(int y, const uint8_t* rgb) noexcept override {
        const RowFormat& f = *format_;
        const auto width = static_cast<size_t>(f.width), line = static_cast<size_t>(y) * width;
        if (f.is_mask) {
            for (size_t x = 0; x < width; ++x) out_[line + x] = rgb[3 * x];
            return;
        }
        if (!f.planar) return write_interleaved(rgb, 3 * width, out_ + 3 * line * f.element_bytes());
        const size_t plane = static_cast<size_t>(f.height) * width;
        uint8_t* const planes[3] = {planes_.data(), planes_.data() + plane_stride_,
                                    planes_.data() + 2 * plane_stride_};
        kernels_->separate(rgb, f.width, planes);
        for (size_t c = 0; c < 3; ++c) {
            uint8_t* out = out_ + (line + c * plane) * f.element_bytes();
            switch (f.type) {
                case ElementType::u8: std::memcpy(out, planes[c], width); break;
                case ElementType::f16:
                    kernels_->look_up_f16(planes[c], f.width, f.f16[c].data(),
                                          reinterpret_cast<uint16_t*>(out));
                    break;
                case ElementType::f32:
                    kernels_->look_up_f32(planes[c], f.width, f.f32[c].data(), reinterpret_cast<float*>(out));
                    break;
            }
        }
    }

    void write_interleaved(const uint8_t* rgb, size_t bytes, uint8_t* out) const noexcept {
        const auto each = [&](const auto& tables, auto* to) {
            for (size_t i = 0; i < bytes; i += 3)
                for (size_t c = 0; c < 3; ++c) to[i + c] = tables[c][rgb[i + c]];
        };
        switch (format_->type) {
            case ElementType::u8: std::memcpy(out, rgb, bytes); return;
            case ElementType::f16: return each(format_->f16, reinterpret_cast<uint16_t*>(out));
            case ElementType::f32: return each(format_->f32, reinterpret_cast<float*>(out));
        }
    }

    AlignedVector<uint8_t> planes_;
    size_t plane_stride_ = 0;
    const Kernels* kernels_ = nullptr;
    const RowFormat* format_ = nullptr;
    RowFormat joined_;  // the format with the tables that waited
    uint8_t* out_ = nullptr;
};

class IntoResampler final : public PixelSink {
  public:
    explicit IntoResampler(Resampler& resampler) : resampler_(resampler) {}
    void pixels(const uint8_t* const* rows, int count) noexcept override { resampler_.push(rows, count); }
    void restart() noexcept override { resampler_.restart(); }

  private:
    Resampler& resampler_;
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
            const auto left = 3 * static_cast<size_t>(part.x0 - region_.x0);
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
