// Operations on a picture that several kinds of stages share. Each has Pillow's pixels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pixels/pixels.h"

namespace standpipe {

// ImageEnhance's: factor 0 is black, the mean grey level, the grey picture, or the smoothed one; 1 the
// picture.
void brighten(Canvas& canvas, float factor) noexcept;
void change_contrast(Canvas& canvas, float factor) noexcept;
void saturate(Canvas& canvas, float factor) noexcept;
// `scratch`: two rows. The border stays.
void sharpen(Canvas& canvas, float factor, uint8_t* scratch) noexcept;

// A random number of the distribution Beta(alpha, alpha).
double drawn_share(double alpha, Draws& draws) noexcept;

// ImageOps'. `bits`: 0 to 8.
void posterize(Canvas& canvas, int bits) noexcept;
void solarize(Canvas& canvas, double threshold) noexcept;

// ImageFilter.GaussianBlur(radius), which is three box blurs. `scratch`: blur_bytes.
void blur_boxes(Canvas& canvas, double radius, uint8_t* scratch) noexcept;
size_t blur_bytes(const Pixels& form) noexcept;

// Image.transform(AFFINE, matrix, NEAREST). `matrix`: six numbers, from a place in the result to one in the
// picture. `fill`: the colour outside. `scratch`: a copy of the picture.
void move_nearest(Canvas& canvas, std::span<const double> matrix, const Colour& fill,
                  uint8_t* scratch) noexcept;

// Pillow's three, and OpenCV's two in fixed point.
enum class Sampling : uint8_t { nearest, bilinear, bicubic, fixed_nearest, fixed_bilinear };
// Reads it from a stage's parameter `at`.
Sampling sampling_in(const PixelStage& stage, size_t at) noexcept;

// Image.transform by AFFINE with six numbers, or by PERSPECTIVE with eight. Likewise.
void warp(Canvas& canvas, std::span<const double> matrix, Sampling sampling, const Colour& fill,
          uint8_t* scratch) noexcept;
// Warps as cv2.warpAffine and warpPerspective of OpenCV 4 do with WARP_INVERSE_MAP, in fixed point. `matrix`
// is that of `warp`: half a pixel is taken off, since OpenCV's places are those of pixels' centres.
void warp_fixed(Canvas& canvas, std::span<const double> matrix, bool interpolates, const Colour& fill,
                uint8_t* scratch) noexcept;

// The matrix of Image.rotate, about `x`, `y`.
struct AffineMatrix {
    double numbers[6];
};
AffineMatrix rotation(double degrees, double x, double y) noexcept;

}  // namespace standpipe
