#include "image/exif.h"

#include <cstddef>
#include <cstring>

namespace standpipe {
namespace {

using Bytes = std::span<const uint8_t>;

constexpr uint8_t kApp1 = 0xe1, kStartOfScan = 0xda, kEnd = 0xd9;
constexpr uint32_t kOrientation = 0x0112, kShort = 3, kLong = 4;

// A number of `size` bytes at `at`; 0 where `bytes` ends before it.
uint32_t number(Bytes bytes, size_t at, size_t size, bool little) noexcept {
    if (at > bytes.size() || bytes.size() - at < size) return 0;
    uint32_t value = 0;
    for (size_t i = 0; i < size; ++i) value = value << 8 | bytes[little ? at + size - 1 - i : at + i];
    return value;
}

// Of TIFF data: only the first directory counts.
int of_directory(Bytes tiff) noexcept {
    if (tiff.size() < 8) return 1;
    const bool little = tiff[0] == 'I';
    if (tiff[0] != tiff[1] || (!little && tiff[0] != 'M') || number(tiff, 2, 2, little) != 42) return 1;
    const size_t first = number(tiff, 4, 4, little);
    const size_t count = number(tiff, first, 2, little);
    for (size_t i = 0; i < count; ++i) {
        const size_t at = first + 2 + 12 * i;
        if (at > tiff.size() || tiff.size() - at < 12) return 1;
        if (number(tiff, at, 2, little) != kOrientation) continue;
        const uint32_t type = number(tiff, at + 2, 2, little);
        if (number(tiff, at + 4, 4, little) != 1 || (type != kShort && type != kLong)) return 1;
        const uint32_t value = number(tiff, at + 8, type == kShort ? 2 : 4, little);
        return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
    }
    return 1;
}

}  // namespace

int exif_orientation(Bytes jpeg) noexcept {
    constexpr uint8_t kExif[] = {'E', 'x', 'i', 'f', 0, 0};
    size_t at = 2;
    while (at + 4 <= jpeg.size() && jpeg[at] == 0xff) {
        const uint8_t marker = jpeg[at + 1];
        if (marker == 0xff) {  // padding
            ++at;
            continue;
        }
        if (marker == kStartOfScan || marker == kEnd) return 1;
        const size_t length = number(jpeg, at + 2, 2, false);
        if (length < 2 || length > jpeg.size() - at - 2) return 1;
        const Bytes body = jpeg.subspan(at + 4, length - 2);
        if (marker == kApp1 && body.size() > sizeof kExif &&
            std::memcmp(body.data(), kExif, sizeof kExif) == 0)
            return of_directory(body.subspan(sizeof kExif));
        at += 2 + length;
    }
    return 1;
}

}  // namespace standpipe
