// The orientation that a JPEG's metadata names.
#pragma once

#include <cstdint>
#include <span>

namespace standpipe {

// Whether Pillow's exif_transpose may turn it: its EXIF data or its XMP data name an orientation from 2 to 8.
// Looks at no byte behind `jpeg`, and at each of its segments once.
bool may_be_turned(std::span<const uint8_t> jpeg) noexcept;

}  // namespace standpipe
