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

enum class Excess { none, scans, blocks, doubt };

// The scans of a picture, counted as they begin.
struct ScanCount {
    int count = 0;
    uint64_t blocks = 0;  // that these scans pass over

    // The scan that is read now, if it is a new one.
    Excess add(const jpeg_decompress_struct& jpeg, int max_scans) noexcept;
};

// The error handler of libjpeg. The caller must have set ``jump`` before a call.
struct JpegErrors {
    jpeg_error_mgr base;
    std::jmp_buf jump;
    Excess excess;  // the error is ours, not libjpeg's

    void watch(jpeg_decompress_struct& jpeg) noexcept;
    bool unsupported() const noexcept;  // something libjpeg knows and can't do, as opposed to damage
    [[noreturn]] static void exceed(j_common_ptr jpeg, Excess excess);
};

// A source of bytes in memory.
//
// Whole: for a decoder that doesn't expect suspension. At the end of the bytes it hands out one end-of-image
// marker, so that the decoder stops; one that wants more, inside a table say, fails.
//
// By blocks: as Pillow feeds libjpeg, which suspends where it needs another block. Errors behind the last row
// count only as far as the block reaches, so the verdict depends on where blocks end.
struct JpegSource {
    jpeg_source_mgr base;
    const JOCTET* end;
    size_t to_skip;  // bytes of the next block that libjpeg passes over
    bool by_blocks;  // else whole
    bool ran_out;    // the decoder wanted more than there is
    bool ends;       // by blocks: an end-of-image marker follows the last byte
    bool made_end;   // that marker was handed out

    void feed(jpeg_decompress_struct& jpeg, std::span<const uint8_t> bytes, bool by_blocks) noexcept;

    // Adds a block. At the end of the bytes: once an end-of-image marker if `completes`, else false.
    bool next_block(bool completes) noexcept;
};

}  // namespace standpipe
