// The pixels that libjpeg decodes, and those that are wanted of them.
#pragma once

#include <cstring>

#include "image/cmyk.h"
#include "image/jpeg.h"
#include "image/jpeg_library.h"
#include "simd/simd.h"

namespace standpipe {

struct JpegForm {
    int components;  // of the file
    Channels wanted;

    bool is_cmyk() const noexcept { return components == 4; }

    // Returns the bytes of a pixel that is wanted.
    int channels() const noexcept {
        switch (wanted) {
            case Channels::rgb: break;
            case Channels::l:
            case Channels::luma: return 1;
            case Channels::rgba: return 4;
            case Channels::as_stored: return components == 1 ? 1 : 3;
        }
        return 3;
    }

    // Returns what libjpeg decodes.
    J_COLOR_SPACE space() const noexcept {
        if (is_cmyk()) return JCS_CMYK;
        switch (wanted) {
            case Channels::rgb: break;
            case Channels::l:
            case Channels::as_stored: return components == 1 ? JCS_GRAYSCALE : JCS_RGB;
            case Channels::luma: return JCS_GRAYSCALE;
            case Channels::rgba: return JCS_EXT_RGBA;
        }
        return JCS_RGB;
    }

    // Returns the bytes of a pixel as libjpeg decodes it.
    size_t bytes() const noexcept {
        const J_COLOR_SPACE decoded = space();
        return decoded == JCS_GRAYSCALE ? 1 : decoded == JCS_RGB ? 3 : 4;
    }

    // Writes what Pillow leaves where libjpeg made nothing: black, or white of a file with four components.
    void blank(uint8_t* row, size_t size) const noexcept {
        std::memset(row, is_cmyk() ? 255 : 0, size);
        if (is_cmyk() || bytes() < 4) return;
        for (size_t i = 3; i < size; i += 4) row[i] = 255;
    }

    // Turns libjpeg's pixels into those that are wanted, in place.
    void convert(const JSAMPROW* rows, int count, size_t width) const noexcept {
        static const Kernels& kernels = best_kernels();
        const bool to_grey = bytes() > 1 && channels() == 1;
        for (int i = 0; i < count; ++i) {
            if (is_cmyk()) cmyk_to_rgb(rows[i], static_cast<int>(width), wanted == Channels::rgba);
            if (to_grey) kernels.to_grey(rows[i], static_cast<int>(width), rows[i]);
        }
    }
};

}  // namespace standpipe
