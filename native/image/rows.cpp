#include "image/rows.h"

#include <algorithm>
#include <cstring>

#include "system/faults.h"

namespace standpipe {
namespace {

// Scratch up to this size stays with its thread and is part of the forecast per worker; what needs more waits
// for the side arena and gives it back.
constexpr uint64_t kKeptScratch = 1 << 20;

uint64_t picture_bytes(Size size) noexcept {
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
    void begin(const Kernels& kernels, const RowFormat& format, const SampleGeometry& geometry,
               uint8_t* out) {
        kernels_ = &kernels;
        format_ = &format;
        out_ = out;
        plane_stride_ = whole_lines(static_cast<size_t>(format.width)) + kSlack;
        if (format.planar) planes_.resize(3 * plane_stride_);
        frame(geometry);
    }

  private:
    void write(int y, const uint8_t* rgb) noexcept override {
        const RowFormat& f = *format_;
        const auto width = static_cast<size_t>(f.width), line = static_cast<size_t>(y) * width;
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
Region united(std::span<Resampler* const> resamplers) noexcept {
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

}  // namespace

std::vector<Pass> passes_of(std::vector<Stage> stages) {
    std::vector<Pass> passes(1);
    bool is_new = true;
    for (Stage& stage : stages) {
        if (auto* pixels = std::get_if<PixelStage>(&stage)) {
            passes.back().pixels.push_back(std::move(*pixels));
        } else {
            if (!is_new) passes.emplace_back();
            passes.back().geometry = std::move(std::get<GeometryStage>(stage));
        }
        is_new = false;
    }
    if (!passes.back().pixels.empty()) passes.emplace_back();
    return passes;
}

std::string over_side_cap(uint64_t needed, uint64_t cap) {
    return "too large: needs " + std::to_string(needed) +
           " bytes at once, more than large_image_memory=" + std::to_string(cap);
}

// What the passes of one head need.
struct RowMaker::OfHead {
    std::vector<Resampler> resamplers;
    std::vector<SampleGeometry> geometries;
    std::vector<Picture> pictures;  // the result of each pass but the last
    SlotRow slot_row;
    SampleKey key{};

    void fit(const Head& head) {
        if (resamplers.size() == head.passes.size()) return;
        geometries.resize(head.passes.size());
        pictures.resize(head.passes.size());
        resamplers.resize(head.passes.size());  // last: it tells that all of them fit
    }

    size_t picture_bytes() const noexcept {
        size_t bytes = 0;
        for (const Picture& picture : pictures) bytes += picture.pixels.capacity();
        return bytes;
    }
};

struct RowMaker::Scratch {
    JpegImage jpeg;
    std::vector<OfHead> heads;
    std::vector<Resampler*> first;  // of each head, while rows come
    std::vector<uint8_t> work;      // two rows on their way out of a picture, or what a pixel stage needs
    std::vector<uint8_t> between;   // two programs
    int denominator = 1;

    void fit(const Program& program) {
        if (heads.size() != program.heads.size()) heads.resize(program.heads.size());
        for (size_t h = 0; h < heads.size(); ++h) heads[h].fit(program.heads[h]);
    }

    // What stays is at most kKeptScratch over all passes: half of it for pictures, unless there is one pass.
    void shrink() {
        jpeg.close();
        size_t passes = 0, of_pictures = 0;
        for (const OfHead& head : heads) {
            passes += head.resamplers.size();
            of_pictures += head.picture_bytes();
        }
        const size_t keep = kKeptScratch / (3 * std::max<size_t>(passes, 1));
        for (OfHead& head : heads) {
            for (Resampler& resampler : head.resamplers) resampler.shrink(keep);
            for (Picture& picture : head.pictures)
                if (of_pictures > kKeptScratch / 2) std::vector<uint8_t>().swap(picture.pixels);
        }
        if (work.capacity() > std::max(keep, kKeptScratch / 6)) std::vector<uint8_t>().swap(work);
    }
};

uint64_t not_kept(uint64_t bytes) noexcept { return bytes > kKeptScratch ? bytes : 0; }

RowMaker::RowMaker(SideArena& side) : side_(side), scratch_(std::make_unique<Scratch>()) {}
RowMaker::~RowMaker() = default;

uint8_t* RowMaker::room(size_t bytes) {
    refit(scratch_->between, bytes);
    return scratch_->between.data();
}

bool only_copies(const Program& program, Size size) noexcept {
    if (program.heads.size() != 1) return false;
    const RowFormat& format = program.format();
    const bool changes = std::ranges::any_of(program.heads.front().passes, [](const Pass& pass) {
        const GeometryStage& stage = pass.geometry;
        return stage.has_crop || stage.resize != GeometryStage::Resize::none || stage.has_window ||
               !stage.mirrors.empty() || !pass.pixels.empty();
    });
    return !changes && program.heads.front().erasing.p <= 0 && format.type == ElementType::u8 &&
           !format.planar && format.height == size.height && format.width == size.width;
}

namespace {

// A resize to more than this along one side is refused: positions would leave Pillow's single-precision
// boxes.
constexpr int kMaxSide = 1 << 24;

std::string too_small(const Window& window, Size whole) {
    const auto text = [](Size size) {
        return std::to_string(size.width) + " × " + std::to_string(size.height) + " pixels";
    };
    return "too small: RandomCrop needs " + text(window.size) + ", but the image has " +
           text(padded(window, whole)) + "; use RandomCrop(..., pad_if_needed=True), or resize it first";
}

// What a pass allocates: rows and weights, copies of two rows of its source, a line of its result with
// planes of it, the result itself where that isn't the slot, and what its pixel stages need one by one.
uint64_t pass_bytes(const SampleGeometry& geometry, const std::vector<PixelStage>& pixels,
                    bool last) noexcept {
    const AxisResize& x = geometry.resample.x;
    const auto in = static_cast<uint64_t>(x.clip_high - x.clip_low),
               out = static_cast<uint64_t>(geometry.out.width);
    uint64_t most = 0;
    for (const PixelStage& stage : pixels)
        most = std::max<uint64_t>(most, stage.scratch_bytes(geometry.out.height, geometry.out.width));
    // Lists of rows and columns.
    const uint64_t continued = geometry.mode == PadMode::constant
                                   ? 0
                                   : sizeof(int) * (out + static_cast<uint64_t>(geometry.out.height) +
                                                    static_cast<uint64_t>(geometry.y.count));
    return Resampler::scratch_bytes(geometry.resample) + 6 * in + 6 * out + 6 * kSlack + most + continued +
           (last ? 0 : picture_bytes(geometry.out));
}

Box crop_box(const GeometryStage& stage, Size from, const SampleKey& key) noexcept {
    return stage.has_crop ? draw_crop(stage.crop, from, key) : Box{0, 0, from.width, from.height};
}

}  // namespace

// Draws and sizes every pass for an image of `source`; `bytes`: what they allocate. `scales`: whether the
// image can be had at 1/2, 1/4 or 1/8.
Outcome RowMaker::size_passes(const Program& program, Size source, bool scales, const SampleKey& key,
                              uint64_t& bytes) {
    scratch_->fit(program);
    bytes = 0;
    int first = scales ? 8 : 1;  // the denominator that suits all heads
    for (size_t h = 0; h < program.heads.size(); ++h) {
        const GeometryStage& stage = program.heads[h].passes.front().geometry;
        SampleKey& own = scratch_->heads[h].key;
        own = key.salted(program.heads[h].salt);
        if (first > 1) first = std::min(first, scale_denominator(stage, crop_box(stage, source, own), own));
    }
    scratch_->denominator = first;
    for (size_t h = 0; h < program.heads.size(); ++h) {
        const std::vector<Pass>& passes = program.heads[h].passes;
        OfHead& own = scratch_->heads[h];
        Size from = source;
        for (size_t i = 0; i < passes.size(); ++i) {
            const GeometryStage& stage = passes[i].geometry;
            const Box box = crop_box(stage, from, own.key);
            const Size whole = resized(stage, {box.height, box.width}, own.key);
            if (whole.height > kMaxSide || whole.width > kMaxSide)
                return Outcome::decode_error("too large: would be resized to " + std::to_string(whole.width) +
                                             " × " + std::to_string(whole.height) + " pixels");
            if (!fits(stage, whole)) return Outcome::decode_error(too_small(stage.window, whole));
            const int denominator = i == 0 ? first : 1;
            const Size decoded{(from.height + denominator - 1) / denominator,
                               (from.width + denominator - 1) / denominator};
            SampleGeometry& geometry = own.geometries[i];
            geometry = sample_geometry(stage, box, own.key, denominator, decoded);
            bytes += pass_bytes(geometry, passes[i].pixels, i + 1 == passes.size());
            from = geometry.out;
        }
    }
    return {};
}

// Sizes every pass and takes the memory that the row needs beyond the thread's own, `source_bytes` of it for
// its encoded and decoded source.
Outcome RowMaker::prepare(const Program& program, Size source, bool scales, uint64_t source_bytes,
                          const SampleKey& key, SideArena::Part& part) {
    uint64_t bytes = 0;
    if (Outcome outcome = size_passes(program, source, scales, key, bytes); outcome.kind != Outcome::Kind::ok)
        return outcome;
    const uint64_t extra = source_bytes + not_kept(bytes);
    if (extra == 0 && part.bytes() == 0) return {};
    if (!part.fits(extra)) return Outcome::decode_error(over_side_cap(part.bytes() + extra, side_.cap()));
    if (!part.add(extra)) return {Outcome::Kind::cancelled, false, {}};
    return {};
}

std::string RowMaker::bytes_from_pixels(const Program& program, Size size, const SampleKey& key,
                                        uint64_t& bytes) {
    return size_passes(program, size, false, key, bytes).text;
}

Resampler& RowMaker::begin(const Program& program, size_t head, size_t pass, const RowPlace& out) {
    OfHead& own = scratch_->heads[head];
    const SampleGeometry& geometry = own.geometries[pass];
    RowSink* sink = &own.slot_row;
    if (pass + 1 < program.heads[head].passes.size()) {
        own.pictures[pass].begin(geometry);
        sink = &own.pictures[pass];
    } else {
        own.slot_row.begin(*program.kernels, program.heads[head].format, geometry, out.of(head));
    }
    own.resamplers[pass].begin(*program.kernels, geometry.resample, *sink);
    return own.resamplers[pass];
}

// Passes after the first, each from the picture that the one before it left, and what changes the finished
// row.
void RowMaker::later_passes(const Program& program, size_t head, const RowPlace& out) {
    const std::vector<Pass>& passes = program.heads[head].passes;
    OfHead& own = scratch_->heads[head];
    for (size_t i = 1; i < passes.size(); ++i) {
        Picture& from = own.pictures[i - 1];
        for (const PixelStage& stage : passes[i - 1].pixels) {
            refit(scratch_->work, stage.scratch_bytes(from.size.height, from.size.width));
            stage.apply(own.key, {from.pixels.data(), from.size.height, from.size.width},
                        scratch_->work.data());
        }
        push_pixels(from.pixels.data(), from.size, begin(program, head, i, out));
    }
    program.heads[head].erasing.apply(own.key, program.heads[head].format, out.of(head));
}

// Rows are copied first: kernels may read a little past a row's end, and the array may end there.
void RowMaker::push_pixels(const uint8_t* rgb, Size size, Resampler& resampler) {
    const Region region = resampler.region();
    const size_t bytes = 3 * static_cast<size_t>(region.width()),
                 stride = 3 * static_cast<size_t>(size.width);
    refit(scratch_->work, 2 * (bytes + kSlack));
    uint8_t* const lines[2] = {scratch_->work.data(), scratch_->work.data() + bytes + kSlack};
    const uint8_t* from = rgb + static_cast<size_t>(region.y0) * stride + 3 * static_cast<size_t>(region.x0);
    for (int y = region.y0; y < region.y1; y += 2) {
        const int count = std::min(region.y1 - y, 2);
        for (int i = 0; i < count; ++i, from += stride) std::memcpy(lines[i], from, bytes);
        resampler.push(lines, count);
    }
}

Outcome RowMaker::decode(const Program& program, const SampleKey& key, uint64_t encoded_bytes,
                         SideArena::Part& part, const RowPlace& out) {
    JpegImage& jpeg = scratch_->jpeg;
    const uint64_t source_bytes = encoded_bytes + jpeg.frame_bytes() + not_kept(jpeg.row_bytes());
    if (Outcome outcome = prepare(program, jpeg.size(), program.fast, source_bytes, key, part);
        outcome.kind != Outcome::Kind::ok)
        return outcome;
    std::string text = decode_once(program, out);
    if (!text.empty()) return Outcome::decode_error(std::move(text));
    for (size_t h = 0; h < program.heads.size(); ++h) later_passes(program, h, out);
    return {Outcome::Kind::ok, jpeg.damaged(), {}, jpeg.truncated(), false, jpeg.redecoded()};
}

// Decodes what the heads need, and runs their first passes row by row.
std::string RowMaker::decode_once(const Program& program, const RowPlace& out) {
    JpegImage& jpeg = scratch_->jpeg;
    if (program.heads.size() == 1) {
        Resampler& resampler = begin(program, 0, 0, out);
        IntoResampler sink(resampler);
        return jpeg.decode(resampler.region(), scratch_->denominator, sink);
    }
    scratch_->first.clear();
    for (size_t h = 0; h < program.heads.size(); ++h) scratch_->first.push_back(&begin(program, h, 0, out));
    const Region region = united(scratch_->first);
    IntoResamplers sink(scratch_->first, region);
    return jpeg.decode(region, scratch_->denominator, sink);
}

Outcome RowMaker::from_encoded(const Program& program, std::span<const uint8_t> bytes, const SampleKey& key,
                               const RowPlace& out, uint64_t uncounted_bytes) {
    SideArena::Part part(side_);
    return from_encoded(program, bytes, key, out, uncounted_bytes, part);
}

Outcome RowMaker::from_encoded(const Program& program, std::span<const uint8_t> bytes, const SampleKey& key,
                               const RowPlace& out, uint64_t uncounted_bytes, SideArena::Part& part) {
    faultpoint(Point::decode_row, key.position, static_cast<int>(key.attempt));
    if (bytes.empty()) return Outcome::decode_error("empty file");
    if (!JpegImage::recognises(bytes)) return {Outcome::Kind::foreign, false, {}};
    std::string text = scratch_->jpeg.open(bytes, program.limits);
    Outcome outcome = text.empty() ? decode(program, key, uncounted_bytes, part, out)
                                   : Outcome::decode_error(std::move(text));
    scratch_->shrink();  // before the side arena counts it as free
    return outcome;
}

Size RowMaker::plain_jpeg(const Program& program, std::span<const uint8_t> bytes) {
    if (!JpegImage::recognises(bytes)) return {};
    JpegImage& jpeg = scratch_->jpeg;
    const bool plain = jpeg.open(bytes, program.limits).empty() && jpeg.plain();
    const Size size = plain ? jpeg.size() : Size{};
    jpeg.close();
    return size;
}

Outcome RowMaker::from_pixels(const Program& program, const uint8_t* rgb, Size size, const SampleKey& key,
                              const RowPlace& out) {
    SideArena::Part part(side_);
    Outcome outcome = prepare(program, size, false, 0, key, part);
    if (outcome.kind != Outcome::Kind::ok) return outcome;
    for (size_t h = 0; h < program.heads.size(); ++h) {
        push_pixels(rgb, size, begin(program, h, 0, out));
        later_passes(program, h, out);
    }
    scratch_->shrink();
    return outcome;
}

}  // namespace standpipe
