#include "io/sums.h"

#include <algorithm>

#include "io/file_window.h"
#include "system/checksum.h"

namespace standpipe {
namespace {

constexpr uint64_t kPieceBytes = 256 << 10;  // stays in a core's cache between the read and the checksum

}  // namespace

SumsResult read_sums(int file, std::span<const int64_t> begins, std::span<const int64_t> sizes,
                     std::span<uint32_t> out) {
    FileWindow window(kPieceBytes);
    window.begin(file, INT64_MAX);
    for (size_t i = 0; i < out.size(); ++i) {
        auto at = static_cast<uint64_t>(begins[i]);
        out[i] = 0;
        for (auto left = static_cast<uint64_t>(sizes[i]); left > 0;) {
            const std::span<const uint8_t> bytes = window.view(at, std::min(left, kPieceBytes));
            if (window.error()) return {SumsFault::cant_read, window.error()};
            if (bytes.empty()) return {SumsFault::too_short, 0};
            out[i] = crc32c(bytes, out[i]);
            at += bytes.size();
            left -= bytes.size();
        }
    }
    return {};
}

}  // namespace standpipe
