// Stages that change the pixels of a whole picture where they are: points, filters, warps.
//
// A kind of stage is a file of this folder with one constant PixelKind, and an entry in the table of
// pixels.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "system/keys.h"

namespace standpipe {

// A picture in memory: (height, width, 3) bytes, rows packed.
struct Pixels {
    uint8_t* rgb = nullptr;
    int height = 0, width = 0;
};

struct PixelKind {
    using Parameters = std::span<const double>;

    const char* name;
    size_t parameters;  // how many numbers describe one
    // The bytes that `apply` needs beside the picture.
    size_t (*scratch_bytes)(Parameters parameters, int height, int width) noexcept;
    // `draws`: behind the one that decided whether the stage takes place.
    void (*apply)(Parameters parameters, Draws& draws, Pixels pixels, uint8_t* scratch) noexcept;
};

// A stage of a program: its random numbers are keyed by the sample and `op`, and it takes place with
// probability `p`.
struct PixelStage {
    const PixelKind* kind = nullptr;
    uint32_t op = 0;
    double p = 1;
    std::vector<double> parameters;

    size_t scratch_bytes(int height, int width) const noexcept {
        return kind->scratch_bytes(parameters, height, width);
    }
    void apply(const SampleKey& key, Pixels pixels, uint8_t* scratch) const noexcept;
};

std::span<const PixelKind* const> pixel_kinds() noexcept;

// Null for an unknown name.
const PixelKind* pixel_kind_named(const std::string& name) noexcept;

}  // namespace standpipe
