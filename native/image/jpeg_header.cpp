#include "image/jpeg_header.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace standpipe {
namespace {

using namespace std::string_view_literals;

enum Marker : uint8_t {
    kBaseline = 0xc0,
    kExtended = 0xc1,
    kProgressive = 0xc2,
    kHuffmanTables = 0xc4,
    kFirstRestart = 0xd0,
    kEnd = 0xd9,
    kScan = 0xda,
    kQuantizers = 0xdb,
    kRestartInterval = 0xdd,
    kApp0 = 0xe0,   // JFIF
    kApp1 = 0xe1,   // EXIF
    kApp2 = 0xe2,   // ICC profile
    kApp13 = 0xed,  // Photoshop
    kApp14 = 0xee,  // Adobe
    kApp15 = 0xef,
    kComment = 0xfe,
};

bool is_usual(uint8_t marker) noexcept {
    switch (marker) {
        case kBaseline:
        case kExtended:
        case kProgressive:
        case kHuffmanTables:
        case kScan:
        case kQuantizers:
        case kRestartInterval:
        case kComment: return true;
        case 0xc5:
        case 0xc6:
        case 0xc7:
        case 0xcd:
        case 0xce:
        case 0xcf: return true;  // hierarchical coding: libjpeg refuses it by its name
        default: return marker >= kApp0 && marker <= kApp15;
    }
}

// Pillow reads the resolution when it opens a file, and fails where that is text or a single byte.
bool has_odd_resolution(std::string_view exif) noexcept {
    for (size_t at = exif.find('\x1a'); at != exif.npos; at = exif.find('\x1a', at + 1)) {
        const auto is_odd = [](char type) { return type == 1 || type == 2 || type == 7; };
        if (at + 3 < exif.size() && exif[at + 1] == 1 && exif[at + 3] == 0 && is_odd(exif[at + 2]))
            return true;
        if (at > 0 && at + 2 < exif.size() && exif[at - 1] == 1 && exif[at + 1] == 0 && is_odd(exif[at + 2]))
            return true;
    }
    return false;
}

// Returns whether Pillow's parser, which reads some segments that libjpeg skips, surely accepts this one.
bool is_plain(uint8_t marker, std::string_view body) noexcept {
    constexpr size_t resource = 6;  // "8BIM" and a number
    switch (marker) {
        case kApp0: return !body.starts_with("JFIF"sv) || body.size() >= 7;
        case kApp1: return !body.starts_with("Exif\0\0"sv) || !has_odd_resolution(body);
        case kApp2: return !body.starts_with("ICC_PROFILE\0"sv) || body.size() >= 14;
        case kApp13:
            return !body.starts_with("Photoshop 3.0\0"sv) ||
                   !body.substr(body.size() - resource).starts_with("8BIM"sv);
        case kApp14: return !body.starts_with("Adobe"sv) || body.size() >= 7;
        default: return true;
    }
}

}  // namespace

bool plain_header(std::span<const uint8_t> bytes) noexcept {
    bool has_exif = false;
    for (size_t at = 2;;) {
        if (at < bytes.size() && bytes[at] != 0xff) return false;
        while (at + 1 < bytes.size() && bytes[at + 1] == 0xff) ++at;
        if (bytes.size() - std::min(bytes.size(), at) < 4) return true;
        const uint8_t marker = bytes[at + 1];
        const auto length = static_cast<size_t>(bytes[at + 2] << 8 | bytes[at + 3]);
        if (!is_usual(marker) || length < 2) return false;
        if (length > bytes.size() - at - 2) return true;
        const std::string_view body(reinterpret_cast<const char*>(bytes.data()) + at + 4, length - 2);
        if (!is_plain(marker, body)) return false;
        const bool exif = marker == kApp1 && body.starts_with("Exif\0\0"sv);
        if (exif && has_exif) return false;  // Pillow joins them
        has_exif |= exif;
        if (marker == kScan) return true;
        at += 2 + length;
    }
}

bool plain_scan(std::span<const uint8_t> scan, bool restarts) noexcept {
    uint8_t next_restart = 0;
    const uint8_t* const end = scan.data() + scan.size();
    for (const uint8_t* at = scan.data(); end - at >= 2;) {
        at = static_cast<const uint8_t*>(std::memchr(at, 0xff, static_cast<size_t>(end - at) - 1));
        if (!at) return false;
        const uint8_t marker = at[1];
        if (restarts && marker == kFirstRestart + next_restart) next_restart = (next_restart + 1) % 8;
        else if (marker != 0 && marker != 0xff) return marker == kEnd;
        at += marker == 0xff ? 1 : 2;
    }
    return false;
}

}  // namespace standpipe
