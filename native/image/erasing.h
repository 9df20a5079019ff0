// Rectangles of a finished row that get another value: the rule of torchvision's and timm's RandomErasing.
#pragma once

#include <array>
#include <cstdint>

#include "simd/channels.h"
#include "system/keys.h"

namespace standpipe {

struct RowArea;
struct RowFormat;

struct Erasing {
    // constant: `value`; colour: a normal number for each channel of a rectangle; pixel: one for each
    // element.
    enum class Mode : uint8_t { constant, colour, pixel };

    uint32_t op = 0;
    double p = 0;  // 0: nothing is erased
    double scale_low = 0, scale_high = 0, ratio_low = 1, ratio_high = 1;
    int min_count = 1, max_count = 1;
    Mode mode = Mode::constant;
    std::array<float, kMostChannels> value{};
    int grid = 1;  // pixels of which places and sizes of rectangles are multiples, as the row's size is

    // `row`: of the slot, complete.
    void apply(const SampleKey& key, const RowFormat& format, const RowArea& row) const noexcept;
};

}  // namespace standpipe
