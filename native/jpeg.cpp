#include "jpeg.h"

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <vector>

#include "jpeg_library.h"

namespace standpipe {
namespace {

constexpr int kRowsAtOnce = 8;
constexpr size_t kKeptRows = 256 << 10;  // bytes of them that stay from image to image

// A scan of a few bytes may pass over all blocks, at up to 100 ns each: scans after these many are refused
// when they and those before pass over more blocks than this, which takes some 3 s.
constexpr int kAnyScans = 16;
constexpr uint64_t kMostBlocks = 1 << 25;

bool ends_with_marker(std::span<const uint8_t> bytes) noexcept {
    size_t end = bytes.size();
    while (end > 0 && bytes[end - 1] == 0) --end;
    return end >= 2 && bytes[end - 2] == 0xff && bytes[end - 1] == JPEG_EOI;
}

// Pillow's CMYK to RGB, in place, after the inversion that it assumes of every JPEG with four components.
void cmyk_to_rgb(uint8_t* row, int width) noexcept {
    const uint8_t* cmyk = row;
    uint8_t* rgb = row;
    for (int x = 0; x < width; ++x, cmyk += 4, rgb += 3) {
        const int not_black = cmyk[3];
        for (int c = 0; c < 3; ++c) {
            const int product = (255 - cmyk[c]) * not_black + 128;
            rgb[c] = static_cast<uint8_t>(std::max(not_black - (((product >> 8) + product) >> 8), 0));
        }
    }
}

}  // namespace

struct JpegImage::State {
    jpeg_decompress_struct jpeg;
    JpegErrors errors;
    JpegSource source;
    jpeg_progress_mgr progress;
    DecodeLimits limits;
    std::span<const uint8_t> bytes;
    bool created = false, damaged = false, truncated = false;
    int counted_scans = 0;
    uint64_t counted_blocks = 0;  // that these scans passed over
    JDIMENSION crop_x = 0;        // first column of decoded rows: crops start at whole blocks
    std::vector<uint8_t> rows;

    void restart() noexcept;
    void rewind(bool suspends) noexcept;
    void choose_output(int denominator) noexcept;
    bool crops_exactly() const noexcept;
    Excess count_scan() noexcept;
    std::string what() const;
    std::string cut(const char* inside) const;
    std::string cut_if_refused(const char* inside);
    void leave_blank(const Region& region, PixelSink& sink);

    // Each calls into libjpeg behind a setjmp, and so holds nothing that has a destructor.
    bool try_header() noexcept;
    bool try_check() noexcept;
    bool try_start(int denominator) noexcept;
    bool try_crop(JDIMENSION x, JDIMENSION width, JDIMENSION skip_rows) noexcept;
    int try_read(JSAMPARRAY rows, int count) noexcept;
};

// A fresh libjpeg object: tables of an earlier image must not serve this one.
void JpegImage::State::restart() noexcept {
    if (created) jpeg_destroy_decompress(&jpeg);
    std::memset(&jpeg, 0, sizeof jpeg);
    errors.watch(jpeg);
    counted_scans = 0;
    counted_blocks = 0;
    jpeg_create_decompress(&jpeg);
    created = true;
    jpeg.client_data = this;
    progress.progress_monitor = [](j_common_ptr common) {
        const Excess excess = static_cast<State*>(common->client_data)->count_scan();
        if (excess != Excess::none) JpegErrors::exceed(common, excess);
    };
    jpeg.progress = &progress;
    source.feed(jpeg, bytes);
}

void JpegImage::State::rewind(bool suspends) noexcept {
    source.suspends = suspends;
    restart();
}

// Called before each row of blocks of a picture with several scans; counts a scan as it begins.
Excess JpegImage::State::count_scan() noexcept {
    if (jpeg.input_scan_number > limits.max_scans) return Excess::scans;
    if (jpeg.input_scan_number == counted_scans) return Excess::none;
    counted_scans = jpeg.input_scan_number;
    for (int c = 0; c < jpeg.comps_in_scan; ++c)
        counted_blocks +=
            uint64_t{jpeg.cur_comp_info[c]->width_in_blocks} * jpeg.cur_comp_info[c]->height_in_blocks;
    return counted_scans > kAnyScans && counted_blocks > kMostBlocks ? Excess::blocks : Excess::none;
}

void JpegImage::State::choose_output(int denominator) noexcept {
    jpeg.scale_num = 1;
    jpeg.scale_denom = static_cast<unsigned>(denominator);
    jpeg.out_color_space = jpeg.num_components == 4 ? JCS_CMYK : JCS_RGB;
}

// Whether columns and rows that aren't wanted may be left out without changing the others.
bool JpegImage::State::crops_exactly() const noexcept {
    // libjpeg-turbo before 3.0 leaves part of such cropped rows as they were in memory.
    const bool miscounts = jpeg.scale_denom > 1 && jpeg.max_h_samp_factor * jpeg.max_v_samp_factor >= 8;
    if (miscounts || !jpeg.progressive_mode || !jpeg.coef_bits) return !miscounts;
    // Where scans are missing, blocks are smoothed by those around them, two in every direction.
    for (int c = 0; c < jpeg.num_components; ++c)
        for (int bits : std::span(jpeg.coef_bits[c], DCTSIZE2))
            if (bits != 0) return false;
    return true;
}

std::string JpegImage::State::what() const {
    if (errors.excess == Excess::scans)
        return "unsupported JPEG: more scans than max_scans=" + std::to_string(limits.max_scans);
    if (errors.excess == Excess::blocks)
        return "unsupported JPEG: " + std::to_string(jpeg.input_scan_number) + " scans of so large a picture";
    char text[JMSG_LENGTH_MAX];
    errors.base.format_message(reinterpret_cast<j_common_ptr>(const_cast<jpeg_decompress_struct*>(&jpeg)),
                               text);
    return std::string(errors.unsupported() ? "unsupported JPEG: " : "damaged JPEG: ") + text;
}

std::string JpegImage::State::cut(const char* inside) const {
    return "truncated: JPEG ends after " + std::to_string(bytes.size()) + " bytes, " + inside;
}

// Likewise, unless that is allowed: then it is only remembered.
std::string JpegImage::State::cut_if_refused(const char* inside) {
    truncated = true;
    return limits.allow_truncated ? std::string() : cut(inside);
}

// What there is where the end came inside a table: black, and white where the file has CMYK, as with Pillow.
void JpegImage::State::leave_blank(const Region& region, PixelSink& sink) {
    rows.assign(3 * static_cast<size_t>(region.width()) + kSlack, jpeg.num_components == 4 ? 255 : 0);
    const uint8_t* blank[kRowsAtOnce];
    std::fill_n(blank, kRowsAtOnce, rows.data());
    for (int y = region.y0; y < region.y1; y += kRowsAtOnce)
        sink.pixels(blank, std::min(kRowsAtOnce, region.y1 - y));
}

bool JpegImage::State::try_header() noexcept {
    if (setjmp(errors.jump)) return false;
    jpeg_read_header(&jpeg, TRUE);
    return true;
}

// False on an error or at a suspension; rows decoded so far are in jpeg.output_scanline.
bool JpegImage::State::try_check() noexcept {
    if (setjmp(errors.jump)) return false;
    if (jpeg_read_header(&jpeg, TRUE) != JPEG_HEADER_OK) return false;
    choose_output(1);
    if (!jpeg_start_decompress(&jpeg)) return false;
    JSAMPROW row = rows.data();
    while (jpeg.output_scanline < jpeg.output_height)
        if (jpeg_read_scanlines(&jpeg, &row, 1) != 1) return false;
    return true;
}

bool JpegImage::State::try_start(int denominator) noexcept {
    if (setjmp(errors.jump)) return false;
    choose_output(denominator);
    return jpeg_start_decompress(&jpeg);
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

JpegImage::JpegImage() : state_(std::make_unique<State>()) {}

JpegImage::~JpegImage() { close(); }

void JpegImage::close() noexcept {
    if (state_->created) jpeg_destroy_decompress(&state_->jpeg);
    state_->created = false;
    if (state_->rows.capacity() > kKeptRows) std::vector<uint8_t>().swap(state_->rows);
}

bool JpegImage::recognises(std::span<const uint8_t> bytes) noexcept {
    return bytes.size() >= 3 && bytes[0] == 0xff && bytes[1] == 0xd8 && bytes[2] == 0xff;
}

std::string JpegImage::open(std::span<const uint8_t> bytes, const DecodeLimits& limits) {
    State& s = *state_;
    s.bytes = bytes;
    s.limits = limits;
    s.damaged = s.truncated = false;
    s.rewind(false);
    const bool parsed = s.try_header();
    if (s.source.ran_out) return s.cut("in the header");
    if (!parsed) return s.what();
    const auto& jpeg = s.jpeg;
    const uint64_t pixels = uint64_t{jpeg.image_width} * jpeg.image_height;
    if (pixels > limits.max_pixels)
        return "too large: " + std::to_string(jpeg.image_width) + " × " + std::to_string(jpeg.image_height) +
               " pixels are above max_pixels=" + std::to_string(limits.max_pixels);
    if (jpeg.data_precision != 8)
        return "unsupported JPEG: " + std::to_string(jpeg.data_precision) + " bits per sample";
    if (jpeg.arith_code) return "unsupported JPEG: arithmetic coding";
    if (jpeg.num_components != 1 && jpeg.num_components != 3 && jpeg.num_components != 4)
        return "unsupported JPEG: " + std::to_string(jpeg.num_components) + " components";
    return {};
}

Size JpegImage::size() const noexcept {
    return {static_cast<int>(state_->jpeg.image_height), static_cast<int>(state_->jpeg.image_width)};
}

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

bool JpegImage::plain() const noexcept {
    auto& jpeg = state_->jpeg;
    return !jpeg.progressive_mode && !jpeg_has_multiple_scans(&jpeg) && !needs_check() &&
           (jpeg.jpeg_color_space == JCS_GRAYSCALE || jpeg.jpeg_color_space == JCS_YCbCr);
}

bool JpegImage::needs_check() const noexcept { return !ends_with_marker(state_->bytes); }

std::string JpegImage::check_whole() {
    State& s = *state_;
    s.rows.resize(static_cast<size_t>(s.jpeg.image_width) * 4 + kSlack);
    s.rewind(true);
    const bool whole = s.try_check();
    const auto row = s.jpeg.output_scanline, height = s.jpeg.image_height;
    std::string text;
    if (!whole) {
        char inside[64];
        if (row == 0 && jpeg_has_multiple_scans(&s.jpeg))
            std::snprintf(inside, sizeof inside, "in scan %d", s.jpeg.input_scan_number);
        else std::snprintf(inside, sizeof inside, "in row %u of %u", row, height);
        text = s.source.ran_out ? s.cut_if_refused(inside) : s.what();
    }
    s.rewind(false);
    if (!s.try_header() && text.empty()) text = s.what();
    return text;
}

Size JpegImage::scaled(int denominator) const noexcept {
    const Size full = size();
    return {(full.height + denominator - 1) / denominator, (full.width + denominator - 1) / denominator};
}

std::string JpegImage::decode(const Region& region, int denominator, PixelSink& sink) {
    State& s = *state_;
    if (!s.try_start(denominator)) {
        std::string text = s.source.ran_out ? s.cut_if_refused("before its last scan") : s.what();
        if (text.empty()) s.leave_blank(region, sink);
        return text;
    }
    auto& jpeg = s.jpeg;
    const auto width = static_cast<int>(jpeg.output_width);

    // Fancy upsampling blends each chroma sample with its neighbours, and at the edge of what is decoded
    // there are none: two more pixels on either side make libjpeg decode the block that holds them.
    constexpr int margin = 2;
    const bool crop = s.crops_exactly();
    const int x0 = crop ? std::max(region.x0 - margin, 0) : 0, y0 = crop ? region.y0 : 0,
              x1 = crop ? std::min(region.x1 + margin, width) : width;
    if (!s.try_crop(static_cast<JDIMENSION>(x0), static_cast<JDIMENSION>(x1 - x0),
                    static_cast<JDIMENSION>(y0)))
        return s.what();

    const size_t channels = jpeg.num_components == 4 ? 4 : 3;
    const size_t stride = jpeg.output_width * channels + kSlack;
    refit(s.rows, stride * kRowsAtOnce);
    JSAMPROW decoded[kRowsAtOnce];
    const uint8_t* wanted[kRowsAtOnce];
    const size_t left = static_cast<size_t>(region.x0 - static_cast<int>(s.crop_x)) * 3;
    for (size_t i = 0; i < kRowsAtOnce; ++i) {
        decoded[i] = s.rows.data() + stride * i;
        wanted[i] = decoded[i] + left;
    }

    for (int y = y0; y < region.y1;) {
        const int most = std::min(kRowsAtOnce, (y < region.y0 ? region.y0 : region.y1) - y);
        int count = 0;
        while (count < most) {
            const int got = s.try_read(decoded + count, most - count);
            if (got < 0) return s.what();
            if (got == 0) return s.cut("inside its pixels");
            count += got;
        }
        if (y >= region.y0) {
            if (channels == 4)
                for (int i = 0; i < count; ++i) cmyk_to_rgb(decoded[i], static_cast<int>(jpeg.output_width));
            sink.pixels(wanted, count);
        }
        y += count;
    }
    s.damaged = jpeg.err->num_warnings > 0;
    return s.source.ran_out ? s.cut_if_refused("inside its pixels") : std::string();
}

namespace {

class Nowhere final : public PixelSink {
  public:
    void pixels(const uint8_t* const*, int) noexcept override {}
};

}  // namespace

std::string JpegImage::parse() {
    std::string text = needs_check() ? check_whole() : std::string();
    if (!text.empty()) return text;
    constexpr int denominator = 8;
    const Size size = scaled(denominator);
    Nowhere nowhere;
    return decode({0, 0, size.width, size.height}, denominator, nowhere);
}

bool JpegImage::damaged() const noexcept { return state_->damaged && !state_->truncated; }

bool JpegImage::truncated() const noexcept { return state_->truncated; }

#define STANDPIPE_TEXT_(x) #x
#define STANDPIPE_TEXT(x) STANDPIPE_TEXT_(x)
const char* jpeg_library_version() noexcept { return STANDPIPE_TEXT(LIBJPEG_TURBO_VERSION); }

}  // namespace standpipe
