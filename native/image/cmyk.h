#pragma once

// Colours of JPEGs with four components, which libjpeg doesn't convert.

#include <algorithm>
#include <cstdint>

namespace standpipe {

// Pillow's CMYK to RGB or RGBA, in place, after the inversion that it assumes of every JPEG with four
// components.
inline void cmyk_to_rgb(uint8_t* row, int width, bool with_alpha) noexcept {
    const uint8_t* cmyk = row;
    uint8_t* rgb = row;
    for (int x = 0; x < width; ++x, cmyk += 4, rgb += with_alpha ? 4 : 3) {
        const int not_black = cmyk[3];
        if (with_alpha) rgb[3] = 255;
        for (int c = 0; c < 3; ++c) {
            const int product = (255 - cmyk[c]) * not_black + 128;
            rgb[c] = static_cast<uint8_t>(std::max(not_black - (((product >> 8) + product) >> 8), 0));
        }
    }
}

}  // namespace standpipe
