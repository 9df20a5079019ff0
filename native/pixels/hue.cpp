// Hues are turned, in Pillow's HSV with 8 bits a channel, as torchvision's adjust_hue does it.
#include <cstring>

#include "pixels/pixels.h"

namespace standpipe {
namespace {

// Pillow's conversions have doubles and a branch for each case. The steps below, for four pixels at once,
// give the same bytes for all 2^24 colours. All numbers but quotients are whole ones below 2^24, which single
// precision holds exactly.
using Numbers = float __attribute__((vector_size(16)));
using Integers = int32_t __attribute__((vector_size(16)));  // of comparisons: -1 or 0

Numbers truncated(Numbers x) noexcept {
    return __builtin_convertvector(__builtin_convertvector(x, Integers), Numbers);
}
Numbers higher(Numbers a, Numbers b) noexcept { return a > b ? a : b; }
Numbers lower(Numbers a, Numbers b) noexcept { return a < b ? a : b; }
// 1 or 0.
Numbers counted(Integers condition) noexcept { return __builtin_convertvector(-condition, Numbers); }

struct FourPixels {
    Numbers first, second, third;
};

// Hue, saturation and value. The hue of a pixel without saturation has no meaning.
FourPixels hsv_of(const FourPixels& rgb) noexcept {
    const Numbers r = rgb.first, g = rgb.second, b = rgb.third, one = Numbers{} + 1;
    const Numbers most = higher(r, higher(g, b)), least = lower(r, lower(g, b));
    const Numbers range = most - least, middle = r + g + b - most - least;
    const Numbers part = (most - middle) / higher(range, one);
    // In sixths of a turn.
    const Numbers red = b == least ? 1 - part : part - 1, green = b == least ? 1 + part : 3 - part,
                  blue = r == least ? 3 + part : 5 - part;
    const Numbers sixths = r == most ? red : g == most ? green : blue;
    const Numbers turns = sixths / 6 + counted(sixths < 0);
    return {truncated(turns * 255), truncated((range * 255 + 0.5F) / higher(most, one)), most};
}

// A value is at least 1 / 43350 away from the next half, so each quotient rounds as the exact one does.
FourPixels rgb_of(const FourPixels& hsv) noexcept {
    const Numbers hue = 2 * hsv.first, saturation = hsv.second, v = hsv.third;
    // 255, the last hue, is the end of the last sextant here, and the start of the first one for Pillow.
    const Integers from1 = hue >= 85, from2 = hue >= 170, from3 = hue >= 255, from4 = hue >= 340,
                   from5 = hue >= 425;
    const Numbers rest = hue - 85 * counted(from1 + from2 + from3 + from4 + from5);  // of 85
    const Integers falls = (from1 & ~from2) | (from3 & ~from4) | from5;
    const Numbers away = falls ? rest : 85 - rest;
    const Numbers p = truncated(v * (255 - saturation) / 255 + 0.5F);
    const Numbers q = truncated((v * (21675 - saturation * away) + 10837.5F) / 21675);
    return {from5   ? v
            : from4 ? q
            : from2 ? p
            : from1 ? q
                    : v,
            from4   ? p
            : from3 ? q
            : from1 ? v
                    : q,
            from5   ? q
            : from3 ? v
            : from2 ? q
                    : p};
}

void turn_four(uint8_t* rgb, float turn) noexcept {
    const auto channel = [&](size_t c) {
        return Numbers{static_cast<float>(rgb[c]), static_cast<float>(rgb[c + 3]),
                       static_cast<float>(rgb[c + 6]), static_cast<float>(rgb[c + 9])};
    };
    FourPixels pixels = hsv_of({channel(0), channel(1), channel(2)});
    const Numbers turned = pixels.first + turn;
    pixels.first = turned - 256 * counted(turned >= 256);
    pixels = rgb_of(pixels);
    const Numbers channels[3] = {pixels.first, pixels.second, pixels.third};
    for (size_t c = 0; c < 3; ++c) {
        const auto bytes = __builtin_convertvector(channels[c], Integers);
        for (size_t i = 0; i < 4; ++i) rgb[c + 3 * i] = static_cast<uint8_t>(bytes[i]);
    }
}

// Two numbers: the lowest turn and the highest, in turns from -0.5 to 0.5.
void turn_hues(const PixelStage& stage, Draws& draws, Canvas& canvas, uint8_t*) noexcept {
    const auto turn = static_cast<float>(static_cast<int>(drawn_factor(stage, draws) * 255) & 255);
    if (!canvas.has_colours()) return;
    const Pixels pixels = canvas.pixels();
    uint8_t* rgb = pixels.data;
    size_t left = pixels.bytes();
    for (; left >= 12; left -= 12, rgb += 12) turn_four(rgb, turn);
    if (left == 0) return;
    uint8_t last[12] = {};
    std::memcpy(last, rgb, left);
    turn_four(last, turn);
    std::memcpy(rgb, last, left);
}

}  // namespace

constinit const PixelKind kHue{"hue", 2, no_scratch, turn_hues};

}  // namespace standpipe
