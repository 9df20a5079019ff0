#include "image/jpeg.h"

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <vector>

#include "image/jpeg_entropy.h"
#include "image/jpeg_form.h"
#include "image/jpeg_header.h"
#include "image/jpeg_library.h"
#include "memory/no_memory.h"

namespace standpipe {
namespace {

constexpr int kRowsAtOnce = 8;
constexpr size_t kKeptRows = 256 << 10;  // bytes of them that stay from image to image

}  // namespace

std::string other_kind(int channels, int first) {
    constexpr const char* kKinds[] = {"L", "LA", "RGB", "RGBA"};
    const auto kind = [&](int number) { return kKinds[std::clamp(number, 1, kMostChannels) - 1]; };
    const std::string other = kind(first);
    return std::string("the image is ") + kind(channels) + ", but the first record is " + other +
           "; use decode(channels=\"" + (first == 2 ? "RGBA" : other) + "\") to convert all to one kind";
}

struct JpegImage::State {
    jpeg_decompress_struct jpeg;
    JpegErrors errors;
    JpegSource source;
    struct Progress {
        jpeg_progress_mgr base;
        State* state;
    } progress;
    JpegEntropy entropy;
    bool own_entropy = false;  // else libjpeg's
    bool redecoded = false;
    DecodeLimits limits;
    std::span<const uint8_t> bytes;
    bool created = false, damaged = false, truncated = false;
    bool doubtful = false;  // whether it is whole shows only at its end
    ScanCount scans;
    JDIMENSION crop_x = 0;  // first column of decoded rows: crops start at whole blocks
    std::vector<uint8_t> rows;

    // False when there is no memory, which what() says.
    bool restart(bool by_blocks) noexcept;
    void choose_output(int denominator) noexcept;
    JpegForm form() const noexcept { return {jpeg.num_components, limits.channels}; }
    bool crops_exactly() const noexcept;
    bool lacks_scans() const noexcept;
    void watch_scans();
    std::string what() const;
    std::string cut(const std::string& inside) const;
    std::string cut_in_row(int row) const;
    bool blames_bytes() const noexcept {
        return errors.excess == Excess::none && errors.base.msg_code != JERR_OUT_OF_MEMORY;
    }

    // Each calls into libjpeg behind a setjmp, and so holds nothing that has a destructor. Those that return
    // an int: 1 or the number of rows when done, 0 when suspended, -1 after an error.
    int try_header() noexcept;
    int try_start(int denominator) noexcept;
    bool try_crop(JDIMENSION x, JDIMENSION width, JDIMENSION skip_rows) noexcept;
    int try_read(JSAMPARRAY rows, int count) noexcept;
    int try_finish() noexcept;

    // A step with as many blocks as it needs; 0 when the file has no more. What is wrong behind the end of
    // the file, inside a table that was cut, is only that.
    template <typename Step>
    int fed(Step step) noexcept {
        for (;;) {
            const int done = step();
            if (done < 0 && source.ends && blames_bytes()) return 0;
            if (done != 0 || !source.next_block(limits.allow_truncated)) return done;
        }
    }
};

// A fresh libjpeg object: tables of an earlier image must not serve this one.
bool JpegImage::State::restart(bool by_blocks) noexcept {
    if (created) jpeg_destroy_decompress(&jpeg);
    std::memset(&jpeg, 0, sizeof jpeg);
    errors.watch(jpeg);
    source.ran_out = false;
    scans = {};
    created = true;  // also when it isn't whole: what there is of it is to be destroyed
    if (setjmp(errors.jump)) return false;
    jpeg_create_decompress(&jpeg);
    progress.state = this;
    progress.base.progress_monitor = [](j_common_ptr common) {
        reinterpret_cast<Progress*>(common->progress)->state->watch_scans();
    };
    jpeg.progress = &progress.base;
    source.feed(jpeg, bytes, by_blocks);
    return true;
}

// Called before each row of blocks of a picture with several scans, and of pixels of any.
void JpegImage::State::watch_scans() {
    const bool is_first = own_entropy && scans.count == 0 && jpeg_has_multiple_scans(&jpeg);
    const Excess excess = scans.add(jpeg, limits.max_scans);
    if (excess != Excess::none) JpegErrors::exceed(reinterpret_cast<j_common_ptr>(&jpeg), excess);
    if (is_first) entropy.attach(jpeg);
}

void JpegImage::State::choose_output(int denominator) noexcept {
    jpeg.scale_num = 1;
    jpeg.scale_denom = static_cast<unsigned>(denominator);
    jpeg.out_color_space = form().space();
}

// Returns whether unwanted columns and rows may be left out without changing the others.
bool JpegImage::State::crops_exactly() const noexcept {
    // libjpeg-turbo before 3.0 leaves part of such cropped rows as they were in memory.
    const bool miscounts = jpeg.scale_denom > 1 && jpeg.max_h_samp_factor * jpeg.max_v_samp_factor >= 8;
    return !miscounts && !lacks_scans();
}

// Returns whether the file lacks scans. libjpeg then smooths a block by those around it, two in every
// direction.
bool JpegImage::State::lacks_scans() const noexcept {
    if (!jpeg.progressive_mode || !jpeg.coef_bits) return false;
    for (int c = 0; c < jpeg.num_components; ++c)
        for (int bits : std::span(jpeg.coef_bits[c], DCTSIZE2))
            if (bits != 0) return true;
    return false;
}

std::string JpegImage::State::what() const {
    if (errors.excess == Excess::scans)
        return "unsupported JPEG: more scans than max_scans=" + std::to_string(limits.max_scans);
    if (errors.excess == Excess::blocks)
        return "unsupported JPEG: " + std::to_string(jpeg.input_scan_number) + " scans of so large a picture";
    if (errors.base.msg_code == JERR_OUT_OF_MEMORY) return kNoMemory;
    char text[JMSG_LENGTH_MAX];
    errors.base.format_message(reinterpret_cast<j_common_ptr>(const_cast<jpeg_decompress_struct*>(&jpeg)),
                               text);
    return std::string(errors.unsupported() ? "unsupported JPEG: " : "damaged JPEG: ") + text;
}

std::string JpegImage::State::cut(const std::string& inside) const {
    return "truncated: JPEG ends after " + std::to_string(bytes.size()) + " bytes, in " + inside;
}

std::string JpegImage::State::cut_in_row(int row) const {
    if (row == 0 && jpeg.input_scan_number > 1) return cut("scan " + std::to_string(jpeg.input_scan_number));
    return cut("row " + std::to_string(row) + " of " + std::to_string(jpeg.image_height));
}

int JpegImage::State::try_header() noexcept {
    if (setjmp(errors.jump)) return -1;
    return jpeg_read_header(&jpeg, TRUE) == JPEG_HEADER_OK;
}

int JpegImage::State::try_start(int denominator) noexcept {
    if (setjmp(errors.jump)) return -1;
    choose_output(denominator);
    const int started = jpeg_start_decompress(&jpeg);
    if (own_entropy && !jpeg_has_multiple_scans(&jpeg)) entropy.attach(jpeg);
    return started;
}

bool JpegImage::State::try_crop(JDIMENSION x, JDIMENSION width, JDIMENSION skip_rows) noexcept {
    if (setjmp(errors.jump)) return false;
    if (x != 0 || width != jpeg.output_width) jpeg_crop_scanline(&jpeg, &x, &width);
    crop_x = x;
    if (skip_rows > 0) jpeg_skip_scanlines(&jpeg, skip_rows);
    return true;
}

int JpegImage::State::try_read(JSAMPARRAY pointers, int count) noexcept {
    if (setjmp(errors.jump)) return -1;
    return static_cast<int>(jpeg_read_scanlines(&jpeg, pointers, static_cast<JDIMENSION>(count)));
}

int JpegImage::State::try_finish() noexcept {
    if (setjmp(errors.jump)) return -1;
    return jpeg_finish_decompress(&jpeg);
}

JpegImage::JpegImage() : state_(std::make_unique<State>()) {}

JpegImage::~JpegImage() { close(); }

void JpegImage::close() noexcept {
    if (state_->created) jpeg_destroy_decompress(&state_->jpeg);
    state_->created = false;
    if (state_->rows.capacity() > kKeptRows) std::vector<uint8_t>().swap(state_->rows);
}

bool JpegImage::recognises(std::span<const uint8_t> bytes) noexcept {
    return bytes.size() >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff &&
           plain_header(bytes);
}

std::string JpegImage::open(std::span<const uint8_t> bytes, const DecodeLimits& limits) {
    State& s = *state_;
    s.bytes = bytes;
    s.limits = limits;
    s.damaged = s.truncated = s.redecoded = false;
    if (!s.restart(false)) return s.what();
    const bool parsed = s.try_header() > 0;
    if (s.source.ran_out) return s.cut("the header");
    if (!parsed) return s.what();
    const auto& jpeg = s.jpeg;
    const uint64_t pixels = uint64_t{jpeg.image_width} * jpeg.image_height;
    if (pixels > limits.max_pixels)
        return "too large: " + std::to_string(jpeg.image_width) + " × " + std::to_string(jpeg.image_height) +
               " pixels are above max_pixels=" + std::to_string(limits.max_pixels);
    if (jpeg.data_precision != 8)
        return "unsupported JPEG: " + std::to_string(jpeg.data_precision) + " bits per sample";
    if (jpeg.num_components != 1 && jpeg.num_components != 3 && jpeg.num_components != 4)
        return "unsupported JPEG: " + std::to_string(jpeg.num_components) + " components";
    // Of several scans libjpeg reads all that there is before the first row.
    s.doubtful =
        !jpeg_has_multiple_scans(&s.jpeg) &&
        !plain_scan({jpeg.src->next_input_byte, jpeg.src->bytes_in_buffer}, jpeg.restart_interval > 0);
    return {};
}

Size JpegImage::size() const noexcept {
    return {static_cast<int>(state_->jpeg.image_height), static_cast<int>(state_->jpeg.image_width)};
}

int JpegImage::channels() const noexcept { return state_->form().channels(); }

uint64_t JpegImage::frame_bytes() const noexcept {
    auto& jpeg = state_->jpeg;
    if (!jpeg_has_multiple_scans(&jpeg)) return 0;
    uint64_t blocks = 0;
    const auto across = [](uint64_t samples, int factor, int most) {
        const auto mcu = static_cast<uint64_t>(8 * most);
        return (samples + mcu - 1) / mcu * static_cast<uint64_t>(factor);
    };
    for (int c = 0; c < jpeg.num_components; ++c) {
        const jpeg_component_info& component = jpeg.comp_info[c];
        blocks += across(jpeg.image_width, component.h_samp_factor, jpeg.max_h_samp_factor) *
                  across(jpeg.image_height, component.v_samp_factor, jpeg.max_v_samp_factor);
    }
    return blocks * sizeof(JBLOCK);
}

uint64_t JpegImage::row_bytes() const noexcept {
    const auto& jpeg = state_->jpeg;
    const uint64_t width = jpeg.image_width;
    uint64_t bytes = width * 4 * kRowsAtOnce;
    for (int c = 0; c < jpeg.num_components; ++c) {
        // A row of blocks with a quarter more above and below, and its rows at full width.
        const jpeg_component_info& component = jpeg.comp_info[c];
        const auto factor = static_cast<uint64_t>(component.h_samp_factor),
                   most = static_cast<uint64_t>(jpeg.max_h_samp_factor);
        bytes += (width * factor / most + 16) * 10 * static_cast<uint64_t>(component.v_samp_factor);
        bytes += width * static_cast<uint64_t>(jpeg.max_v_samp_factor);
    }
    return bytes;
}

Size JpegImage::scaled(int denominator) const noexcept {
    const Size full = size();
    return {(full.height + denominator - 1) / denominator, (full.width + denominator - 1) / denominator};
}

std::string JpegImage::decode(const Region& region, int denominator, PixelSink& sink) {
    State& s = *state_;
    std::string text;
    s.own_entropy = !s.limits.only_libjpeg;
    if (!s.doubtful) text = decode_part(region, denominator, sink);
    s.redecoded = s.errors.excess == Excess::doubt;
    if (s.redecoded) text = decode_again(region, denominator, sink);
    if (s.doubtful) text = decode_to_end(region, denominator, sink);
    s.damaged = s.jpeg.err->num_warnings > 0;
    return text;
}

// Decodes again from the first byte, by libjpeg-turbo alone: its verdict and pixels count.
std::string JpegImage::decode_again(const Region& region, int denominator, PixelSink& sink) {
    State& s = *state_;
    s.own_entropy = false;
    sink.restart();
    if (!s.restart(false) || s.try_header() <= 0) return s.what();
    return decode_part(region, denominator, sink);
}

// Memory for some rows, and where the wanted part of each begins: at column `first`.
struct JpegImage::Rows {
    Rows(State& s, int width, int first) : stride(static_cast<size_t>(width) * s.form().bytes() + kSlack) {
        refit(s.rows, stride * kRowsAtOnce);
        for (size_t i = 0; i < kRowsAtOnce; ++i) {
            decoded[i] = s.rows.data() + stride * i;
            wanted[i] = decoded[i] + static_cast<size_t>(first * s.form().channels());
        }
    }

    const size_t stride;
    JSAMPROW decoded[kRowsAtOnce];
    const uint8_t* wanted[kRowsAtOnce];
};

// Only what the region needs. Finds out of files with several scans whether they are doubtful, before any
// row.
std::string JpegImage::decode_part(const Region& region, int denominator, PixelSink& sink) {
    State& s = *state_;
    const bool started = s.try_start(denominator) > 0;
    s.doubtful = s.source.ran_out;
    if (s.doubtful) return {};
    if (!started) return s.what();
    auto& jpeg = s.jpeg;
    const auto width = static_cast<int>(jpeg.output_width);

    // Fancy upsampling blends each chroma sample with its neighbours, and at the edge of what is decoded
    // there are none: two more pixels on either side make libjpeg decode the block that holds them. Below
    // five pixels a component may have one column left, for which libjpeg would choose all upsamplers anew.
    constexpr int margin = 2, least = 5;
    const bool crop = s.crops_exactly();
    const int x0 = crop ? std::clamp(region.x0 - margin, 0, std::max(width - least, 0)) : 0,
              x1 = crop ? std::min(std::max(region.x1 + margin, x0 + least), width) : width,
              y0 = crop ? region.y0 : 0;
    if (!s.try_crop(static_cast<JDIMENSION>(x0), static_cast<JDIMENSION>(x1 - x0),
                    static_cast<JDIMENSION>(y0)))
        return s.what();

    Rows rows(s, static_cast<int>(jpeg.output_width), region.x0 - static_cast<int>(s.crop_x));
    for (int y = y0; y < region.y1;) {
        const int most = std::min(kRowsAtOnce, (y < region.y0 ? region.y0 : region.y1) - y);
        int count = 0;
        while (count < most) {
            const int got = s.try_read(rows.decoded + count, most - count);
            if (got < 0) return s.what();
            if (got == 0) return s.cut_in_row((y + count) * denominator);
            count += got;
        }
        if (y >= region.y0) {
            s.form().convert(rows.decoded, count, jpeg.output_width);
            sink.pixels(rows.wanted, count);
        }
        y += count;
    }
    return {};
}

// Decodes the whole image, as Pillow does.
std::string JpegImage::decode_to_end(const Region& region, int denominator, PixelSink& sink) {
    State& s = *state_;
    const Size size = scaled(denominator);
    s.own_entropy = false;
    if (!s.restart(true)) return s.what();
    int done = s.fed([&] { return s.try_header(); });
    if (done > 0) done = s.fed([&] { return s.try_start(denominator); });
    if (done < 0) return s.what();

    Rows rows(s, size.width, region.x0);
    for (int y = 0, stop = 0; y < size.height; y = stop) {
        stop = std::min(y + kRowsAtOnce, y < region.y0 ? region.y0 : y < region.y1 ? region.y1 : size.height);
        int row = y;
        while (done > 0 && row < stop) {
            done = s.fed([&] { return s.try_read(rows.decoded + (row - y), stop - row); });
            row += std::max(done, 0);
        }
        if (done < 0) return s.what();
        if (done == 0 && !s.limits.allow_truncated) return s.cut_in_row(row * denominator);
        for (; row < stop; ++row) s.form().blank(rows.decoded[row - y], rows.stride);
        if (y < region.y0 || y >= region.y1) continue;
        s.form().convert(rows.decoded, stop - y, static_cast<size_t>(size.width));
        sink.pixels(rows.wanted, stop - y);
    }
    s.truncated = s.source.ran_out;
    // Behind the last row: of a file with several scans everything was read before the first one.
    const bool reads_on = !s.truncated && !jpeg_has_multiple_scans(&s.jpeg);
    return reads_on && s.try_finish() < 0 ? s.what() : std::string();
}

std::string JpegImage::parse() {
    const int denominator = state_->doubtful ? 1 : 8;  // a text names the row
    const Size size = scaled(denominator);
    PixelSink nowhere;
    return decode({0, 0, size.width, size.height}, denominator, nowhere);
}

bool JpegImage::damaged() const noexcept { return state_->damaged && !state_->truncated; }

bool JpegImage::truncated() const noexcept { return state_->truncated; }

bool JpegImage::redecoded() const noexcept { return state_->redecoded; }

bool JpegImage::smoothed_otherwise() const noexcept {
    return LIBJPEG_TURBO_VERSION_NUMBER < 3000001 && state_->lacks_scans();
}

#define STANDPIPE_TEXT_(x) #x
#define STANDPIPE_TEXT(x) STANDPIPE_TEXT_(x)
const char* jpeg_library_version() noexcept { return STANDPIPE_TEXT(LIBJPEG_TURBO_VERSION); }

}  // namespace standpipe
