// The header of a JPEG as Pillow's own parser reads it, before libjpeg does.
#pragma once

#include <cstdint>
#include <span>

namespace standpipe {

// True where Pillow's parser and libjpeg can't disagree about the header: baseline or progressive Huffman
// coding, only well-formed segments of usual kinds, and nothing between them. True as well for a header that
// is cut short, which both refuse. Where it is false, Pillow decides: its parser refuses some files that
// libjpeg takes, and goes on where libjpeg would stop.
bool plain_header(std::span<const uint8_t> bytes) noexcept;

// True where a JPEG's only scan, which begins with `scan`, has the restart markers it should have, in order,
// and then the end-of-image marker. With any other marker the verdict depends on how far libjpeg reads.
bool plain_scan(std::span<const uint8_t> scan, bool restarts) noexcept;

}  // namespace standpipe
