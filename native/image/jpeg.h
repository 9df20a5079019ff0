// Decoding JPEG row by row, and only the part of the picture that is wanted.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "image/geometry.h"

namespace standpipe {

// A scan of a few bytes may pass over all blocks, at up to 100 ns each: scans after these many are refused
// when they and those before pass over more blocks than this, which takes some 3 s. Where the last of them is
// doubtful, libjpeg-turbo reads all of them again.
constexpr int kAnyScans = 16;
constexpr uint64_t kMostBlocks = 1 << 25;

// The channels in which images are decoded. rgb, l, rgba: those of Pillow's convert(). luma: the luma of a
// JPEG itself. as_stored: one or three, as the file has them; Pillow's files may also have two or four.
enum class Channels : uint8_t { rgb, l, luma, rgba, as_stored };

// The error of an image that isn't of the first record's kind.
std::string other_kind(int channels, int first);

// The limits above which files are refused; see sp.DecodeLimits.
struct DecodeLimits {
    uint64_t max_pixels = 0;
    int max_scans = 0;
    bool allow_truncated = false;  // files that end too soon are decoded as far as they go, and grey below
    bool only_libjpeg = false;  // Huffman codes are libjpeg-turbo's to decode, as where ours isn't compiled
    Channels channels = Channels::rgb;
};

// Takes rows of decoded pixels, in order, some at a time: an even number of them except for the last
// ones. This one drops them.
class PixelSink {
  public:
    virtual ~PixelSink() = default;
    virtual void pixels(const uint8_t* const* /*rows*/, int /*count*/) noexcept {}

    // The rows come again, from the first one on.
    virtual void restart() noexcept {}
};

// One JPEG, from header to pixels. Methods return an empty string, or what is wrong with the file.
class JpegImage {
  public:
    JpegImage();
    ~JpegImage();
    JpegImage(const JpegImage&) = delete;
    JpegImage& operator=(const JpegImage&) = delete;

    // True for JPEGs that are decoded here. Pillow decodes the others: those whose header is out of the
    // ordinary, and arithmetic and lossless coding.
    static bool recognises(std::span<const uint8_t> bytes) noexcept;

    // Parses the header; allocates nothing that grows with the image. `bytes` must outlive the object.
    std::string open(std::span<const uint8_t> bytes, const DecodeLimits& limits);

    Size size() const noexcept;

    // Returns the bytes of a decoded pixel.
    int channels() const noexcept;

    // Returns the memory that decoding takes beyond row_bytes(): the coefficients of images with several
    // scans.
    uint64_t frame_bytes() const noexcept;

    // Returns an upper bound of the bytes of rows that decoding holds at once: libjpeg's and its own.
    uint64_t row_bytes() const noexcept;

    // Returns the size of the image at 1/denominator.
    Size scaled(int denominator) const noexcept;

    // Decodes `region` of the image at 1/denominator into `sink`, exactly as a full decode would give it. The
    // answer doesn't depend on the region: a file that isn't surely whole is decoded to its end.
    std::string decode(const Region& region, int denominator, PixelSink& sink);

    // Decodes the whole image and keeps nothing. Returns what decode() would return for it. Reads every bit,
    // but makes pixels at 1/8 of the size, which takes half the time.
    std::string parse();

    // Frees what decoding allocated.
    void close() noexcept;

    // Returns whether the scan has damage that was decoded over, as Pillow does too.
    bool damaged() const noexcept;

    // Returns whether the file ends too soon; where that is allowed, decoding made up the rest.
    bool truncated() const noexcept;

    // Returns whether our entropy decoder had a doubt, so that libjpeg-turbo decoded the file again from its
    // first byte.
    bool redecoded() const noexcept;

    // Returns whether the file lacks scans, and the libjpeg-turbo in use is older than 3.0.1. It may smooth
    // over that in another way than Pillow 13.
    bool smoothed_otherwise() const noexcept;

  private:
    std::string decode_again(const Region& region, int denominator, PixelSink& sink);
    std::string decode_part(const Region& region, int denominator, PixelSink& sink);
    std::string decode_to_end(const Region& region, int denominator, PixelSink& sink);

    struct State;
    struct Rows;
    std::unique_ptr<State> state_;
};

// The version of libjpeg-turbo this was compiled with, such as "2.1.5".
const char* jpeg_library_version() noexcept;

}  // namespace standpipe
