#include "image/exif.h"

#include <cstddef>
#include <string_view>

namespace standpipe {
namespace {

using Bytes = std::span<const uint8_t>;

constexpr uint8_t kApp1 = 0xe1, kStartOfScan = 0xda, kEnd = 0xd9;
constexpr uint32_t kOrientation = 0x0112, kShort = 3, kLong = 4;
constexpr std::string_view kExif("Exif\0\0", 6), kXmp("http://ns.adobe.com/xap/1.0/\0", 29);
constexpr std::string_view kXmpOrientation = "tiff:Orientation";

// A number of `size` bytes at `at`; 0 where `bytes` ends before it.
uint32_t number(Bytes bytes, size_t at, size_t size, bool little) noexcept {
    if (at > bytes.size() || bytes.size() - at < size) return 0;
    uint32_t value = 0;
    for (size_t i = 0; i < size; ++i) value = value << 8 | bytes[little ? at + size - 1 - i : at + i];
    return value;
}

bool is_turn(uint32_t orientation) noexcept { return orientation >= 2 && orientation <= 8; }

// Of TIFF data: only the first directory counts.
bool turned_by_exif(Bytes tiff) noexcept {
    if (tiff.size() < 8) return false;
    const bool little = tiff[0] == 'I';
    if (tiff[0] != tiff[1] || (!little && tiff[0] != 'M') || number(tiff, 2, 2, little) != 42) return false;
    const size_t first = number(tiff, 4, 4, little);
    const size_t count = number(tiff, first, 2, little);
    for (size_t i = 0; i < count; ++i) {
        const size_t at = first + 2 + 12 * i;
        if (at > tiff.size() || tiff.size() - at < 12) return false;
        if (number(tiff, at, 2, little) != kOrientation) continue;
        const uint32_t type = number(tiff, at + 2, 2, little);
        if (number(tiff, at + 4, 4, little) != 1 || (type != kShort && type != kLong)) return false;
        return is_turn(number(tiff, at + 8, type == kShort ? 2 : 4, little));
    }
    return false;
}

// tiff:Orientation="6", or <tiff:Orientation>6</tiff:Orientation>
bool turned_by_xmp(std::string_view xmp) noexcept {
    for (size_t at = 0; (at = xmp.find(kXmpOrientation, at)) != xmp.npos;) {
        std::string_view rest = xmp.substr(at += kXmpOrientation.size());
        for (const std::string_view before : {std::string_view("=\""), std::string_view(">")})
            if (rest.starts_with(before) && rest.size() > before.size() &&
                is_turn(static_cast<uint8_t>(rest[before.size()]) - uint32_t{'0'}))
                return true;
    }
    return false;
}

}  // namespace

bool may_be_turned(Bytes jpeg) noexcept {
    size_t at = 2;
    while (at + 4 <= jpeg.size() && jpeg[at] == 0xff) {
        const uint8_t marker = jpeg[at + 1];
        if (marker == 0xff) {  // padding
            ++at;
            continue;
        }
        if (marker == kStartOfScan || marker == kEnd) return false;
        const size_t length = number(jpeg, at + 2, 2, false);
        if (length < 2 || length > jpeg.size() - at - 2) return false;
        const Bytes body = jpeg.subspan(at + 4, length - 2);
        const std::string_view text(reinterpret_cast<const char*>(body.data()), body.size());
        if (marker == kApp1 && text.starts_with(kExif) && turned_by_exif(body.subspan(kExif.size())))
            return true;
        if (marker == kApp1 && text.starts_with(kXmp) && turned_by_xmp(text)) return true;
        at += 2 + length;
    }
    return false;
}

}  // namespace standpipe
