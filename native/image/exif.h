// The orientation that a JPEG's metadata names.
#pragma once

#include <cstdint>
#include <span>

namespace standpipe {

// Returns whether Pillow's exif_transpose may turn the image: its EXIF or XMP data name an orientation from 2
// to 8. Reads no byte behind `jpeg`, and each of its segments once.
bool may_be_turned(std::span<const uint8_t> jpeg) noexcept;

}  // namespace standpipe
