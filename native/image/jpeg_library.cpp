#include "image/jpeg_library.h"

#include <algorithm>

#include "image/jpeg.h"

namespace standpipe {
namespace {

constexpr size_t kPillowBlock = 64 << 10;

JpegErrors* errors_of(j_common_ptr jpeg) { return reinterpret_cast<JpegErrors*>(jpeg->err); }

[[noreturn]] void fail(j_common_ptr jpeg) { std::longjmp(errors_of(jpeg)->jump, 1); }

void count_warning(j_common_ptr jpeg, int level) {
    if (level < 0) ++jpeg->err->num_warnings;
}

JpegSource* source_of(j_decompress_ptr jpeg) { return reinterpret_cast<JpegSource*>(jpeg->src); }

void nothing(j_decompress_ptr) {}

boolean fill(j_decompress_ptr jpeg) {
    static const JOCTET end_of_image[2] = {0xff, JPEG_EOI};
    JpegSource* source = source_of(jpeg);
    if (source->by_blocks && (!source->ends || source->made_end)) return FALSE;
    source->ran_out = true;
    if (source->made_end) fail(reinterpret_cast<j_common_ptr>(jpeg));
    source->made_end = true;
    source->base.next_input_byte = end_of_image;
    source->base.bytes_in_buffer = sizeof end_of_image;
    return TRUE;
}

// Passes over bytes of the buffer; how many weren't in it.
size_t pass_over(jpeg_source_mgr& buffer, size_t count) {
    const size_t passed = std::min(count, buffer.bytes_in_buffer);
    buffer.next_input_byte += passed;
    buffer.bytes_in_buffer -= passed;
    return count - passed;
}

void skip(j_decompress_ptr jpeg, long count) {
    JpegSource* source = source_of(jpeg);
    if (count <= 0) return;
    source->to_skip = pass_over(source->base, static_cast<size_t>(count));
    if (source->to_skip > 0 && !source->by_blocks) source->ran_out = true;
}

}  // namespace

Excess ScanCount::add(const jpeg_decompress_struct& jpeg, int max_scans) noexcept {
    if (jpeg.input_scan_number > max_scans) return Excess::scans;
    if (jpeg.input_scan_number == count) return Excess::none;
    count = jpeg.input_scan_number;
    for (int c = 0; c < jpeg.comps_in_scan; ++c)
        blocks += uint64_t{jpeg.cur_comp_info[c]->width_in_blocks} * jpeg.cur_comp_info[c]->height_in_blocks;
    return count > kAnyScans && blocks > kMostBlocks ? Excess::blocks : Excess::none;
}

void JpegErrors::watch(jpeg_decompress_struct& jpeg) noexcept {
    jpeg.err = jpeg_std_error(&base);
    base.error_exit = fail;
    base.emit_message = count_warning;
    excess = Excess::none;
}

void JpegErrors::exceed(j_common_ptr jpeg, Excess excess) {
    errors_of(jpeg)->excess = excess;
    fail(jpeg);
}

bool JpegErrors::unsupported() const noexcept {
    const int code = base.msg_code;
    return code == JERR_SOF_UNSUPPORTED || code == JERR_ARITH_NOTIMPL || code == JERR_BAD_PRECISION ||
           code == JERR_NOT_COMPILED || code == JERR_CONVERSION_NOTIMPL || code == JERR_CCIR601_NOTIMPL ||
           code == JERR_FRACT_SAMPLE_NOTIMPL || code == JERR_COMPONENT_COUNT || code == JERR_BAD_J_COLORSPACE;
}

void JpegSource::feed(jpeg_decompress_struct& jpeg, std::span<const uint8_t> bytes, bool blocks) noexcept {
    base = {bytes.data(), blocks ? 0 : bytes.size(), nothing, fill, skip, jpeg_resync_to_restart, nothing};
    end = bytes.data() + bytes.size();
    by_blocks = blocks;
    to_skip = 0;
    ran_out = ends = made_end = false;
    jpeg.src = &base;
}

bool JpegSource::next_block(bool completes) noexcept {
    do {
        const auto left = static_cast<size_t>(end - base.next_input_byte) - base.bytes_in_buffer;
        if (ends || left == 0) {
            const bool again = ends || to_skip > 0;
            ran_out = true;
            ends = completes && !again;
            return ends;
        }
        base.bytes_in_buffer += std::min(left, kPillowBlock);
        to_skip = pass_over(base, to_skip);
    } while (to_skip > 0);
    return true;
}

}  // namespace standpipe
