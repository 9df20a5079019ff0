// Hues are turned, in Pillow's HSV with 8 bits a channel, as torchvision's adjust_hue does it.
#include "pixels/tables.h"

namespace standpipe {
namespace {

struct Hsv {
    uint8_t hue = 0, saturation = 0, value = 0;
};

uint8_t clipped(double value) noexcept { return static_cast<uint8_t>(std::clamp(value, 0.0, 255.0)); }

// Pillow's conversion to HSV, in its order of operations and with its types.
Hsv hsv_of(const uint8_t* rgb) noexcept {
    const int r = rgb[0], g = rgb[1], b = rgb[2];
    const int most = std::max({r, g, b}), least = std::min({r, g, b});
    if (most == least) return {0, 0, static_cast<uint8_t>(most)};
    const auto range = static_cast<float>(most - least);
    const float red = static_cast<float>(most - r) / range, green = static_cast<float>(most - g) / range,
                blue = static_cast<float>(most - b) / range;
    float hue = 0;
    if (r == most) hue = blue - green;
    else if (g == most) hue = static_cast<float>(2.0 + red - blue);
    else hue = static_cast<float>(4.0 + green - red);
    const double turns = hue / 6.0 + 1.0;  // below 2: what Pillow's fmod gives is exact
    hue = static_cast<float>(turns >= 1.0 ? turns - 1.0 : turns);
    const float saturation = range / static_cast<float>(most);
    return {clipped(static_cast<int>(hue * 255.0)), clipped(static_cast<int>(saturation * 255.0)),
            static_cast<uint8_t>(most)};
}

// Pillow's conversion from HSV.
void to_rgb(Hsv hsv, uint8_t* rgb) noexcept {
    const uint8_t v = hsv.value;
    if (hsv.saturation == 0) {
        rgb[0] = rgb[1] = rgb[2] = v;
        return;
    }
    const double sextant = static_cast<float>(hsv.hue) * 6.0 / 255.0;
    const int number = static_cast<int>(sextant);
    const auto rest = static_cast<float>(sextant - static_cast<float>(number));
    const auto saturation = static_cast<float>(static_cast<float>(hsv.saturation) / 255.0);
    const auto scaled = [&](double part) {
        return clipped(static_cast<int>(static_cast<float>(v) * part + 0.5));
    };
    const uint8_t p = scaled(1.0 - saturation), q = scaled(1.0 - saturation * rest),
                  t = scaled(1.0 - saturation * (1.0 - rest));
    const uint8_t sextants[6][3] = {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}};
    std::copy_n(sextants[number % 6], 3, rgb);
}

// Two numbers: the lowest turn and the highest, in turns from -0.5 to 0.5.
void turn_hues(const PixelStage& stage, Draws& draws, Pixels pixels, uint8_t*) noexcept {
    const auto turn = static_cast<int>(drawn_factor(stage, draws) * 255);
    uint8_t* const end = pixels.rgb + pixels.bytes();
    for (uint8_t* rgb = pixels.rgb; rgb != end; rgb += 3) {
        Hsv hsv = hsv_of(rgb);
        hsv.hue = static_cast<uint8_t>(hsv.hue + turn);
        to_rgb(hsv, rgb);
    }
}

}  // namespace

extern const PixelKind kHue;
constinit const PixelKind kHue{"hue", 2, no_scratch, turn_hues};

}  // namespace standpipe
