#include "io/sums.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "system/checksum.h"

namespace standpipe {
namespace {

constexpr size_t kPieceBytes = 256 << 10;  // stays in a core's cache between the read and the checksum

}  // namespace

SumsResult read_sums(int file, std::span<const int64_t> begins, std::span<const int64_t> sizes,
                     std::span<uint32_t> out) {
    std::vector<uint8_t> piece(kPieceBytes);
    int64_t from = 0, to = 0;  // of the file, in `piece`
    for (size_t i = 0; i < out.size(); ++i) {
        uint32_t sum = 0;
        int64_t at = begins[i];
        for (int64_t left = sizes[i]; left > 0;) {
            if (at < from || at >= to) {
                const ssize_t got = pread(file, piece.data(), piece.size(), static_cast<off_t>(at));
                if (got < 0 && errno == EINTR) continue;
                if (got < 0) return {SumsFault::cant_read, errno};
                if (got == 0) return {SumsFault::too_short, 0};
                from = at;
                to = at + got;
            }
            const int64_t size = std::min(left, to - at);
            sum = crc32c({piece.data() + (at - from), static_cast<size_t>(size)}, sum);
            at += size;
            left -= size;
        }
        out[i] = sum;
    }
    return {};
}

}  // namespace standpipe
