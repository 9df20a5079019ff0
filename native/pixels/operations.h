// Operations on a picture that several kinds of stages share. Each has Pillow's pixels.
#pragma once

#include <array>
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

// Does one of these by a factor that is drawn.
template <void (*operation)(Canvas&, float) noexcept>
void by_factor(const PixelStage& stage, Draws& draws, Canvas& canvas, uint8_t*) noexcept {
    operation(canvas, static_cast<float>(drawn_factor(stage, draws)));
}

// Looks each channel up in the table that its histogram makes.
template <ByteTable (*table_of)(const Histogram&) noexcept>
void by_histogram(const PixelStage&, Draws&, Canvas& canvas, uint8_t*) noexcept {
    const Histograms counts = canvas.histograms();
    ByteTables tables;
    std::ranges::transform(counts, tables.begin(), table_of);
    canvas.look_up(tables);
}

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

// A warp with OpenCV's pixels whose random numbers are drawn.
struct DrawnWarp {
    std::array<double, 8> matrix;  // that of `warp`; without perspective, the last two numbers are 0
    int height, width;             // of the result
    bool interpolates;
    Colour fill;
};
// Draws the warp of a stage "random_affine" with OpenCV's pixels, for a picture of height × width. `draws`:
// behind the one that decided whether the stage takes place.
DrawnWarp drawn_affine(const PixelStage& stage, Draws& draws, int height, int width) noexcept;
// Warps the picture, which gets the size of the result; its memory has room for both. `scratch`: a copy of
// the picture.
void warp_fixed(Canvas& canvas, const DrawnWarp& warp, uint8_t* scratch) noexcept;

// A part of a picture of height × width: `pixels` are those from column `left`, row `top` on.
struct PicturePart {
    Pixels pixels;
    int left = 0, top = 0, height = 0, width = 0;
};
// Warps into `out`, which has the result's size, as cv2.warpAffine and warpPerspective of OpenCV 4 do with
// WARP_INVERSE_MAP, in fixed point. Half a pixel is taken off the matrix, since OpenCV's places are those of
// pixels' centres. The part has all pixels that the warp reads: the result is that of the whole picture.
void warp_fixed(const Kernels& kernels, const PicturePart& from, const DrawnWarp& warp,
                const Pixels& out) noexcept;
// Returns the part of a picture of height × width that a warp reads, without pixels: `pixels` has its size,
// which may be 0 × 0.
PicturePart seen(const DrawnWarp& warp, int height, int width) noexcept;

// A picture that is made row by row.
class PictureRows {
  public:
    int height, width;
    // Writes `count` pixels of a row, from column `first` on.
    virtual void write(int row, int first, int count, uint8_t* out) const noexcept = 0;

  protected:
    PictureRows(int rows, int columns) noexcept : height(rows), width(columns) {}
    ~PictureRows() = default;
};
// Does the same as `warp_fixed` to three channels, sooner, if the warp interpolates, keeps rows and columns
// what they are, and halves them at most. Else returns false.
bool warp_rows(const Kernels& kernels, const PictureRows& from, const DrawnWarp& warp,
               const Pixels& out) noexcept;

// The matrix of Image.rotate, about `x`, `y`.
struct AffineMatrix {
    double numbers[6];
};
AffineMatrix rotation(double degrees, double x, double y) noexcept;

}  // namespace standpipe
