// The orientation that a JPEG's EXIF data names.
#pragma once

#include <cstdint>
#include <span>

namespace standpipe {

// 1 to 8 as EXIF numbers them; 1 where there is none, or none that can be read. Looks at no byte behind
// `jpeg`, and at each of its segments once.
int exif_orientation(std::span<const uint8_t> jpeg) noexcept;

}  // namespace standpipe
