// Each value is subtracted from 255, as Pillow's ImageOps.invert does it.
#include "pixels/tables.h"

namespace standpipe {
namespace {

void invert(const PixelStage&, Draws&, Pixels pixels, uint8_t*) noexcept {
    uint8_t* const end = pixels.rgb + pixels.bytes();
    for (uint8_t* byte = pixels.rgb; byte != end; ++byte) *byte = static_cast<uint8_t>(255 - *byte);
}

}  // namespace

extern const PixelKind kInvert;
constinit const PixelKind kInvert{"invert", 0, no_scratch, invert};

}  // namespace standpipe
