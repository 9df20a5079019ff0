// The format of an image's row in a slot.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "image/geometry.h"
#include "simd/channels.h"

namespace standpipe {

enum class ElementType : uint8_t { u8, f16, f32 };

// `height` × `width` × `channels` elements, planes first or pixels first. {0, 0}: the size differs from row
// to row.
struct RowFormat {
    int height = 0, width = 0;
    ElementType type = ElementType::u8;
    bool planar = false;
    // The value of each byte of each channel, for the element type; the other table is unused, and u8 uses
    // none.
    std::array<std::array<float, 256>, kMostChannels> f32{};
    std::array<std::array<uint16_t, 256>, kMostChannels> f16{};
    int channels = 3;
    // The bytes of elements beside a picture that is smaller than its canvas: of all channels of a pixel.
    std::array<uint8_t, 4 * kMostChannels> padding{};

    bool varies() const noexcept { return height == 0; }
    size_t element_bytes() const noexcept {
        return type == ElementType::u8 ? 1 : type == ElementType::f16 ? 2 : 4;
    }
    size_t row_bytes() const noexcept { return bytes_of({height, width}); }
    size_t bytes_of(Size size) const noexcept {
        return static_cast<size_t>(channels) * static_cast<size_t>(size.height) *
               static_cast<size_t>(size.width) * element_bytes();
    }
};

// The place of a picture in memory: the upper left of a canvas.
struct RowArea {
    uint8_t* first = nullptr;  // of the canvas
    Size picture, canvas;
};

}  // namespace standpipe
