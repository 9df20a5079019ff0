#include "image/rows.h"

#include <algorithm>
#include <cstring>

#include "image/exif.h"
#include "image/row_sinks.h"
#include "system/faults.h"

namespace standpipe {
namespace {

// Scratch up to this size stays with its thread and is part of the forecast per worker; what needs more waits
// for the side arena and gives it back.
constexpr uint64_t kKeptScratch = 1 << 20;

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

// The state of one head's passes.
struct InputMaker::OfHead {
    std::vector<Resampler> resamplers;
    std::vector<SampleGeometry> geometries;
    std::vector<Picture> pictures;  // the result of each pass but the last
    SlotRow slot_row;
    SampleKey key{};
    bool mirrored = false;  // by all passes together

    void fit(const Head& head) {
        if (resamplers.size() >= head.passes.size()) return;
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

struct InputMaker::Scratch {
    JpegImage jpeg;
    std::vector<OfHead> heads;  // of one input: the next one uses them again
    size_t first_head = 0;
    std::vector<Resampler*> first;  // of each head, while rows come
    std::vector<uint8_t> work;      // two rows on their way out of a picture, or what a pixel stage needs
    int denominator = 1;

    OfHead& of(size_t head) noexcept { return heads[head - first_head]; }

    void fit(const Program& program, size_t input) {
        const auto of_input = program.heads_of(input);
        first_head = of_input.front();
        if (heads.size() < of_input.size()) heads.resize(of_input.size());
        for (const size_t h : of_input) of(h).fit(program.heads[h]);
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

InputMaker::InputMaker() : scratch_(std::make_unique<Scratch>()) {}
InputMaker::~InputMaker() = default;

bool only_mirrors(const GeometryStage& stage) noexcept {
    return stage.zoom_out.p == 0 && !stage.has_crop && !stage.crop_by_boxes &&
           stage.resize == GeometryStage::Resize::none && !stage.has_window;
}

bool only_copies(const Program& program, Size size) noexcept {
    if (program.heads.size() != 1) return false;
    const RowFormat& format = program.format();
    const bool changes = std::ranges::any_of(program.heads.front().passes, [](const Pass& pass) {
        return !only_mirrors(pass.geometry) || !pass.geometry.mirrors.empty() ||
               !pass.geometry.early_mirrors.empty() || !pass.pixels.empty();
    });
    return !changes && program.heads.front().erasing.p <= 0 && format.type == ElementType::u8 &&
           (!format.planar || format.channels == 1) && format.channels == program.inputs.front().channels &&
           format.height == size.height && format.width == size.width;
}

namespace {

std::string too_small(const Window& window, Size whole) {
    return "too small: RandomCrop needs " + text_of(window.size) + " pixels, but the image has " +
           text_of(padded(window, whole)) +
           " pixels; use RandomCrop(..., pad_if_needed=True), or resize it first";
}

Pixels form_of(Size size, int channels) noexcept { return {nullptr, size.height, size.width, channels}; }

// Returns the bytes that a pass allocates: rows and weights, copies of two rows of its source, a line of its
// result with planes of it, the result itself unless it is the slot, and the most that a pixel stage needs.
uint64_t pass_bytes(const SampleGeometry& geometry, const std::vector<PixelStage>& pixels, int channels,
                    bool last) noexcept {
    const Passage made = passage(pixels, form_of(geometry.out, channels));
    const AxisResize& x = geometry.resample.x;
    const auto in = static_cast<uint64_t>(x.clip_high - x.clip_low),
               out = static_cast<uint64_t>(geometry.out.width);
    // Lists of rows and columns.
    const uint64_t continued = geometry.mode == PadMode::constant
                                   ? 0
                                   : sizeof(int) * (out + static_cast<uint64_t>(geometry.out.height) +
                                                    static_cast<uint64_t>(geometry.y.count));
    return Resampler::scratch_bytes(geometry.resample, channels) +
           2 * static_cast<uint64_t>(channels) * (in + out) + 6 * kSlack + made.scratch_bytes + continued +
           (last ? 0 : made.bytes + kSlack);
}

}  // namespace

// Draws the random numbers of every pass for an image of `source`, and sets `bytes` to what the passes
// allocate. `scales`: whether the image is available at 1/2, 1/4 or 1/8.
Outcome InputMaker::size_passes(const Program& program, size_t input, Size source, bool scales,
                                const SampleKey& key, uint64_t& bytes) {
    if (program.windows > 0 && !key.windows)
        return Outcome::decode_error(
            "RandomIoUCrop has no boxes here, as only batches of a loader have them");
    scratch_->fit(program, input);
    bytes = 0;
    int first = scales ? 8 : 1;  // the denominator that suits all heads
    for (const size_t h : program.heads_of(input)) {
        SampleKey& own = scratch_->of(h).key;
        own = key.salted(program.heads[h].salt);
        const auto [stage, of_stage] = drawn(program.heads[h].passes.front().geometry, own);
        if (first > 1)
            first = std::min(first, scale_denominator(stage, cut_of(stage, source, of_stage), of_stage));
    }
    scratch_->denominator = first;
    for (const size_t h : program.heads_of(input)) {
        const std::vector<Pass>& passes = program.heads[h].passes;
        OfHead& own = scratch_->of(h);
        own.mirrored = false;
        Size from = source;
        for (size_t i = 0; i < passes.size(); ++i) {
            const auto [stage, of_stage] = drawn(passes[i].geometry, own.key);
            const Cut cut = cut_of(stage, from, of_stage);
            const Size whole = resized(stage, cut.box.size(), of_stage);
            if (is_too_large(whole))
                return Outcome::decode_error("too large: would be resized to " + text_of(whole) + " pixels");
            if (!fits(stage, whole)) return Outcome::decode_error(too_small(stage.window, whole));
            SampleGeometry& geometry = own.geometries[i];
            geometry = sample_geometry(stage, cut, of_stage, i == 0 ? first : 1);
            own.mirrored ^= geometry.resample.mirror ^ cut.mirrored;
            bytes += pass_bytes(geometry, passes[i].pixels, program.inputs[input].channels,
                                i + 1 == passes.size());
            const Pixels made = passage(passes[i].pixels, form_of(geometry.out, 1)).form;
            from = {made.height, made.width};
        }
    }
    return {};
}

// Returns the error message for a row whose place has another size than its passes make; "" without one.
std::string InputMaker::misfit(const Program& program, size_t input, const RowPlace& out) const {
    for (const size_t h : program.heads_of(input)) {
        const Head& head = program.heads[h];
        const Size made = scratch_->of(h).geometries[head.passes.size() - 1].out,
                   wanted = place_of(program, h, out).picture;
        if (made == wanted) continue;
        if (!head.format.varies()) return "the result has another size than its row in the batch";
        return "the result has " + text_of(made) + " pixels, but " + text_of(wanted) +
               " by the size of the image in the index: did its file change?";
    }
    return {};
}

// Sizes every pass and takes the memory that the row needs beyond the thread's own, `source_bytes` of it for
// its encoded and decoded source.
Outcome InputMaker::prepare(const Program& program, size_t input, Size source, bool scales,
                            uint64_t source_bytes, const SampleKey& key, SideArena::Part& part,
                            const RowPlace& out) {
    uint64_t bytes = 0;
    if (Outcome outcome = size_passes(program, input, source, scales, key, bytes);
        outcome.kind != Outcome::Kind::ok)
        return outcome;
    if (std::string text = misfit(program, input, out); !text.empty())
        return Outcome::decode_error(std::move(text));
    const uint64_t extra = source_bytes + not_kept(bytes);
    if (extra == 0 && part.bytes() == 0) return {};
    if (!part.fits(extra)) return Outcome::decode_error(over_side_cap(part.bytes() + extra, part.cap()));
    if (!part.add(extra)) return {Outcome::Kind::cancelled, false, {}};
    return {};
}

std::string InputMaker::bytes_from_pixels(const Program& program, size_t input, Size size,
                                          const SampleKey& key, uint64_t& bytes) {
    return size_passes(program, input, size, false, key, bytes).text;
}

RowArea InputMaker::place_of(const Program& program, size_t head, const RowPlace& out) const noexcept {
    const std::optional<size_t>& twin = program.heads[head].twin;
    return out.of(twin && scratch_->of(head).mirrored ? *twin : head, program.heads[head].format);
}

Resampler& InputMaker::begin(const Program& program, size_t head, size_t pass, const RowPlace& out,
                             const ByteTables* waiting) {
    OfHead& own = scratch_->of(head);
    const SampleGeometry& geometry = own.geometries[pass];
    const int channels =
        pass == 0 ? program.inputs[program.heads[head].input].channels : own.pictures[pass - 1].channels;
    RowSink* sink = &own.slot_row;
    if (pass + 1 < program.heads[head].passes.size()) {
        const auto& stages = program.heads[head].passes[pass].pixels;
        own.pictures[pass].begin(geometry, channels, passage(stages, form_of(geometry.out, channels)).bytes);
        sink = &own.pictures[pass];
    } else {
        own.slot_row.begin(*program.kernels, program.heads[head].format, geometry, waiting,
                           place_of(program, head, out));
    }
    own.resamplers[pass].begin(*program.kernels, geometry.resample, channels, *sink);
    return own.resamplers[pass];
}

// Passes after the first, each from the picture that the one before it left, and what changes the finished
// row.
void InputMaker::later_passes(const Program& program, size_t head, const RowPlace& out) {
    const std::vector<Pass>& passes = program.heads[head].passes;
    OfHead& own = scratch_->of(head);
    for (size_t i = 1; i < passes.size(); ++i) {
        Picture& from = own.pictures[i - 1];
        const bool is_exact = program.inputs[program.heads[head].input].is_exact();
        Canvas canvas(*program.kernels,
                      {from.pixels.data(), from.size.height, from.size.width, from.channels, is_exact});
        for (const PixelStage& stage : passes[i - 1].pixels) {
            refit(scratch_->work, stage.scratch_bytes(canvas.form()));
            stage.apply(own.key, canvas, scratch_->work.data());
        }
        from.size = {canvas.height(), canvas.width()};
        from.channels = canvas.form().channels;
        const bool joins = i + 1 == passes.size() && only_mirrors(passes[i].geometry) &&
                           program.heads[head].format.type != ElementType::u8;
        if (!joins) canvas.pixels();
        push_pixels({from.pixels.data(), from.size, from.channels, true},
                    begin(program, head, i, out, canvas.waiting()));
    }
    program.heads[head].erasing.apply(own.key, program.heads[head].format, place_of(program, head, out));
}

// Without slack, rows are copied first: kernels may read a little past a row's end, and the array may end
// there.
void InputMaker::push_pixels(const RawPixels& pixels, Resampler& resampler) {
    const Region region = resampler.region();
    const auto channels = static_cast<size_t>(resampler.channels());
    const size_t bytes = channels * static_cast<size_t>(region.width()),
                 stride = channels * static_cast<size_t>(pixels.size.width);
    if (!pixels.has_slack) refit(scratch_->work, 2 * (bytes + kSlack));
    uint8_t* const copies[2] = {scratch_->work.data(), scratch_->work.data() + bytes + kSlack};
    const uint8_t* from =
        pixels.first + static_cast<size_t>(region.y0) * stride + channels * static_cast<size_t>(region.x0);
    const uint8_t* lines[2] = {copies[0], copies[1]};
    for (int y = region.y0; y < region.y1; y += 2) {
        const int count = std::min(region.y1 - y, 2);
        for (int i = 0; i < count; ++i, from += stride)
            if (pixels.has_slack) lines[i] = from;
            else std::memcpy(copies[i], from, bytes);
        resampler.push(lines, count);
    }
}

Outcome InputMaker::decode(const Program& program, size_t input, const SampleKey& key, uint64_t encoded_bytes,
                           SideArena::Part& part, const RowPlace& out) {
    JpegImage& jpeg = scratch_->jpeg;
    const uint64_t source_bytes = encoded_bytes + jpeg.frame_bytes() + not_kept(jpeg.row_bytes());
    if (Outcome outcome =
            prepare(program, input, jpeg.size(), program.inputs[input].fast, source_bytes, key, part, out);
        outcome.kind != Outcome::Kind::ok)
        return outcome;
    std::string text = decode_once(program, input, out);
    if (!text.empty()) return Outcome::decode_error(std::move(text));
    for (const size_t h : program.heads_of(input)) later_passes(program, h, out);
    return {Outcome::Kind::ok, jpeg.damaged(), {}, jpeg.truncated(), false, jpeg.redecoded()};
}

// Decodes what an input's heads need, and runs their first passes row by row.
std::string InputMaker::decode_once(const Program& program, size_t input, const RowPlace& out) {
    JpegImage& jpeg = scratch_->jpeg;
    scratch_->first.clear();
    for (const size_t h : program.heads_of(input)) scratch_->first.push_back(&begin(program, h, 0, out));
    const Region region = united(scratch_->first);
    IntoResamplers sink(scratch_->first, region);
    return jpeg.decode(region, scratch_->denominator, sink);
}

Outcome InputMaker::from_encoded(const Program& program, size_t input, std::span<const uint8_t> bytes,
                                 const SampleKey& key, const RowPlace& out, uint64_t uncounted_bytes,
                                 SideArena::Part& part) {
    faultpoint(Point::decode_row, key.position, static_cast<int>(key.attempt));
    const Input& from = program.inputs[input];
    if (bytes.empty()) return Outcome::decode_error("empty file");
    if (from.is_exact() || !JpegImage::recognises(bytes) || (from.upright && may_be_turned(bytes)))
        return {Outcome::Kind::foreign, false, {}};
    std::string text = scratch_->jpeg.open(bytes, from.limits);
    if (const int got = scratch_->jpeg.channels(); text.empty() && got != from.channels)
        text = other_kind(got, from.channels);
    const Size size = text.empty() ? scratch_->jpeg.size() : Size{};
    Outcome outcome = text.empty() ? decode(program, input, key, uncounted_bytes, part, out)
                                   : Outcome::decode_error(std::move(text));
    outcome.size = size;
    scratch_->shrink();  // before the side arena counts it as free
    return outcome;
}

Outcome InputMaker::from_pixels(const Program& program, size_t input, const RawPixels& pixels,
                                const SampleKey& key, const RowPlace& out, SideArena::Part& part) {
    if (const int channels = program.inputs[input].channels; pixels.channels != channels)
        return Outcome::decode_error(other_kind(pixels.channels, channels));
    Outcome outcome = prepare(program, input, pixels.size, false, 0, key, part, out);
    outcome.size = pixels.size;
    if (outcome.kind != Outcome::Kind::ok) return outcome;
    for (const size_t h : program.heads_of(input)) {
        push_pixels(pixels, begin(program, h, 0, out));
        later_passes(program, h, out);
    }
    scratch_->shrink();
    return outcome;
}

}  // namespace standpipe
