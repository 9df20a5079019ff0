// The lower bits of each value become zero, as Pillow's ImageOps.posterize does it.
#include "pixels/tables.h"

namespace standpipe {
namespace {

// One number: how many bits stay, 1 to 8.
void posterize(const PixelStage& stage, Draws&, Pixels pixels, uint8_t*) noexcept {
    const auto mask = static_cast<uint8_t>(0xff << (8 - static_cast<int>(stage.parameters[0])));
    uint8_t* const end = pixels.rgb + pixels.bytes();
    for (uint8_t* byte = pixels.rgb; byte != end; ++byte) *byte &= mask;
}

}  // namespace

extern const PixelKind kPosterize;
constinit const PixelKind kPosterize{"posterize", 1, no_scratch, posterize};

}  // namespace standpipe
