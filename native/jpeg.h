// Decoding JPEG row by row, and only the part of the picture that is wanted.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "geometry.h"

namespace standpipe {

// What is refused.
struct DecodeLimits {
    uint64_t max_pixels = 178'956'970;
    int max_scans = 100;
    bool allow_truncated = false;  // files that end too soon are decoded as far as they go, and grey below
};

// Takes rows of decoded RGB pixels, in order, some at a time: an even number of them but for the last ones.
class PixelSink {
  public:
    virtual ~PixelSink() = default;
    virtual void pixels(const uint8_t* const* rows, int count) noexcept = 0;
};

// One JPEG, from header to pixels. Methods return an empty string, or what is wrong with the file.
class JpegImage {
  public:
    JpegImage();
    ~JpegImage();
    JpegImage(const JpegImage&) = delete;
    JpegImage& operator=(const JpegImage&) = delete;

    static bool recognises(std::span<const uint8_t> bytes) noexcept;

    // Parses the header; allocates nothing that grows with the image. `bytes` must outlive the object.
    std::string open(std::span<const uint8_t> bytes, const DecodeLimits& limits);

    Size size() const noexcept;

    // Memory beyond row_bytes() that decoding will take: the coefficients of images with several scans.
    uint64_t frame_bytes() const noexcept;

    // At most this for the rows that decoding holds at once: libjpeg's and its own.
    uint64_t row_bytes() const noexcept;

    // Whether any decoder takes it: baseline, one scan, 8 bits, grey or YCbCr, and the file ends as it
    // should.
    bool plain() const noexcept;

    // True when the file doesn't end as a JPEG should, and must pass check_whole() before it may be trusted.
    bool needs_check() const noexcept;

    // Decodes to the end and throws the pixels away.
    std::string check_whole();

    // What size() becomes at 1/denominator.
    Size scaled(int denominator) const noexcept;

    // Decodes `region` of the image at 1/denominator into `sink`, exactly as a full decode would give it.
    std::string decode(const Region& region, int denominator, PixelSink& sink);

    // Decodes all of it and keeps nothing: what decode() would say of the whole image. Every bit is looked
    // at, and pixels are made at 1/8 of the size, which takes half the time.
    std::string parse();

    // Gives back what decoding allocated.
    void close() noexcept;

    // Damage inside the scan that was decoded over, as Pillow does too.
    bool damaged() const noexcept;

    // It ends too soon; where that is allowed, decoding made up the rest.
    bool truncated() const noexcept;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

// The version of libjpeg-turbo this was compiled with, such as "2.1.5".
const char* jpeg_library_version() noexcept;

}  // namespace standpipe
