#pragma once

// libjpeg as it is used here: an error jumps, a warning counts, and bytes come from memory.

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>

extern "C" {
#include <jerror.h>
#include <jpeglib.h>
}

namespace standpipe {

enum class Excess { none, scans, blocks };

// Where libjpeg's errors go: whoever calls it has to have set ``jump``.
struct JpegErrors {
    jpeg_error_mgr base;
    std::jmp_buf jump;
    Excess excess;  // the error is ours, not libjpeg's

    void watch(jpeg_decompress_struct& jpeg) noexcept;
    bool unsupported() const noexcept;  // something libjpeg knows and can't do, as opposed to damage
    [[noreturn]] static void exceed(j_common_ptr jpeg, Excess excess);
};

// A source of bytes in memory. At their end it either suspends, so that truncation shows itself, or hands out
// one end-of-image marker, so that a decoder that doesn't expect suspension stops. One that wants more,
// inside a table say, fails.
struct JpegSource {
    jpeg_source_mgr base;
    bool suspends;
    bool ran_out, made_end;

    void feed(jpeg_decompress_struct& jpeg, std::span<const uint8_t> bytes) noexcept;
};

}  // namespace standpipe
