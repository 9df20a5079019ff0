// A picture is blended with its mean grey level, as Pillow's ImageEnhance.Contrast does it.
#include "pixels/operations.h"
#include "pixels/tables.h"

namespace standpipe {

void change_contrast(Pixels pixels, float factor) noexcept {
    uint64_t sum = 0;
    const uint8_t* const end = pixels.rgb + pixels.bytes();
    for (const uint8_t* rgb = pixels.rgb; rgb != end; rgb += 3) sum += grey(rgb);
    const double count = static_cast<double>(pixels.bytes() / 3);
    const int mean = static_cast<int>(static_cast<double>(sum) / count + 0.5);
    ByteTable table;
    for (int value = 0; value < 256; ++value) table[value] = blended(mean, value, factor);
    look_up(pixels, table);
}

namespace {

// Two numbers: the lowest factor and the highest.
void apply(const PixelStage& stage, Draws& draws, Pixels pixels, uint8_t*) noexcept {
    change_contrast(pixels, static_cast<float>(drawn_factor(stage, draws)));
}

}  // namespace

extern const PixelKind kContrast;
constinit const PixelKind kContrast{"contrast", 2, no_scratch, apply};

}  // namespace standpipe
