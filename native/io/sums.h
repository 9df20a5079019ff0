// CRC-32C of many ranges of a file.
#pragma once

#include <cstdint>
#include <span>

namespace standpipe {

enum class SumsFault : int { none = 0, cant_read, too_short };

struct SumsResult {
    SumsFault fault = SumsFault::none;
    int error = 0;  // the system's number, for cant_read
};

// Writes the CRC-32C of bytes [begins[i], begins[i] + sizes[i]) of a file to out[i]. The file is read in
// large pieces if ranges follow one another. All sizes are at least 0.
SumsResult read_sums(int file, std::span<const int64_t> begins, std::span<const int64_t> sizes,
                     std::span<uint32_t> out);

}  // namespace standpipe
