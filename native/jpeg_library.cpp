#include "jpeg_library.h"

namespace standpipe {
namespace {

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
    source->ran_out = true;
    if (source->suspends) return FALSE;
    if (source->made_end) fail(reinterpret_cast<j_common_ptr>(jpeg));
    source->made_end = true;
    source->base.next_input_byte = end_of_image;
    source->base.bytes_in_buffer = sizeof end_of_image;
    return TRUE;
}

void skip(j_decompress_ptr jpeg, long count) {
    JpegSource* source = source_of(jpeg);
    if (count <= 0) return;
    const auto wanted = static_cast<size_t>(count);
    if (wanted > source->base.bytes_in_buffer) {
        source->ran_out = true;
        source->base.next_input_byte += source->base.bytes_in_buffer;
        source->base.bytes_in_buffer = 0;
        return;
    }
    source->base.next_input_byte += wanted;
    source->base.bytes_in_buffer -= wanted;
}

}  // namespace

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

void JpegSource::feed(jpeg_decompress_struct& jpeg, std::span<const uint8_t> bytes) noexcept {
    base = {bytes.data(), bytes.size(), nothing, fill, skip, jpeg_resync_to_restart, nothing};
    ran_out = made_end = false;
    jpeg.src = &base;
}

}  // namespace standpipe
