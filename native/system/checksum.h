// The checksum of rows, quick enough to be taken at every read; and the checksum of files that others read.
#pragma once

#include <cstdint>
#include <span>

namespace standpipe {

// CRC-32C of four lanes, of which lane i holds the 8-byte words i, i + 4, i + 8, …, because processors take a
// word in three cycles and can begin one in each; then of the lanes' results, what is left of the bytes, and
// their number. The same on every machine. Changed bits of a word that lie within 32 of each other are always
// seen, as by CRC-32C, and any other change but once in 2^32.
uint32_t checksum(std::span<const uint8_t> bytes) noexcept;

// CRC-32C as in RFC 3720, which other programs compute too: of bytes that follow those whose CRC is `before`.
uint32_t crc32c(std::span<const uint8_t> bytes, uint32_t before = 0) noexcept;

// One way to take the checksum of rows.
struct ChecksumPath {
    const char* name;
    uint32_t (*take)(std::span<const uint8_t> bytes) noexcept;
};

// Null where this build or this processor doesn't have it: "table", "sse4.2", "armv8".
const ChecksumPath* checksum_path(const char* name) noexcept;

}  // namespace standpipe
