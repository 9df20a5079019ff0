// The lower bits of each value become zero, as Pillow's ImageOps.posterize does it.
#include "pixels/operations.h"
#include "pixels/tables.h"

namespace standpipe {

void posterize(Pixels pixels, int bits) noexcept {
    const auto mask = static_cast<uint8_t>(0xff << (8 - bits));
    uint8_t* const end = pixels.rgb + pixels.bytes();
    for (uint8_t* byte = pixels.rgb; byte != end; ++byte) *byte &= mask;
}

namespace {

// One number: how many bits stay, 0 to 8.
void apply(const PixelStage& stage, Draws&, Pixels pixels, uint8_t*) noexcept {
    posterize(pixels, static_cast<int>(stage.parameters[0]));
}

}  // namespace

extern const PixelKind kPosterize;
constinit const PixelKind kPosterize{"posterize", 1, no_scratch, apply};

}  // namespace standpipe
