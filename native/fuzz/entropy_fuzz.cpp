// JPEGs through both entropy decoders: the same verdict, warnings and pixels of any part at any scale. Other
// bytes are a scan of some layout for ours alone, which must end within them.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "fuzz/collected.h"
#include "fuzz/harness.h"
#include "image/entropy.h"
#include "image/jpeg.h"

namespace standpipe {
namespace {

constexpr DecodeLimits kLimits{1 << 20, 100};
constexpr uint64_t kMostFrame = 32 << 20;

struct Tally {
    uint64_t decoded = 0, redecoded = 0, refused = 0, scans = 0;
    ~Tally() {
        std::fprintf(
            stderr,
            "entropy_fuzz: %llu decoded by both, %llu only by libjpeg-turbo, %llu refused, %llu bare scans\n",
            static_cast<unsigned long long>(decoded), static_cast<unsigned long long>(redecoded),
            static_cast<unsigned long long>(refused), static_cast<unsigned long long>(scans));
    }
} tally;

struct Answer {
    std::string text;
    std::vector<uint8_t> rgb;
    bool damaged = false, redecoded = false;
};

// False where it isn't decoded at all.
bool decoded_by(bool only_libjpeg, Bytes bytes, Draws draws, Answer& answer) {
    JpegImage jpeg;
    DecodeLimits limits = kLimits;
    limits.only_libjpeg = only_libjpeg;
    answer.text = jpeg.open(bytes, limits);
    if (!answer.text.empty() || jpeg.frame_bytes() > kMostFrame) return false;
    const int denominator = draws.below(4) == 0 ? 1 << draws.below(4) : 1;
    const Region region = any_region(jpeg.scaled(denominator), draws);
    Collected sink(region.width());
    answer.text = jpeg.decode(region, denominator, sink);
    answer.rgb = std::move(sink.bytes);
    answer.damaged = jpeg.damaged();
    answer.redecoded = jpeg.redecoded();
    return true;
}

void check_jpeg(Bytes bytes, const Draws& draws) {
    Answer ours, theirs;
    const bool opened = decoded_by(false, bytes, draws, ours);
    if (decoded_by(true, bytes, draws, theirs) != opened) fail("only one of them opens it");
    if (ours.text != theirs.text) fail("\"" + ours.text + "\" instead of \"" + theirs.text + "\"");
    if (ours.damaged != theirs.damaged) fail("only one of them finds damage");
    if (ours.text.empty() && ours.rgb != theirs.rgb) fail("other pixels");
    ++(!opened || !ours.text.empty() ? tally.refused : ours.redecoded ? tally.redecoded : tally.decoded);
}

// The first bytes choose tables and layout.
void check_scan(Bytes bytes, Draws& draws) {
    ++tally.scans;
    std::vector<HuffmanCode> codes(4);
    for (HuffmanCode& code : codes) {
        size_t symbols = 0, room = 1;  // codes of a length that are free
        for (size_t length = 1; length <= 16; ++length) {
            room *= 2;
            const auto count = std::min<size_t>(draws.below(std::min<size_t>(room, 60)), 256 - symbols);
            code.counts[length] = static_cast<uint8_t>(count);
            symbols += count;
            room -= count;
        }
        for (uint8_t& symbol : code.symbols) symbol = static_cast<uint8_t>(draws.below(256));
    }
    ScanLayout layout;
    layout.blocks = 1 + static_cast<int>(draws.below(ScanLayout::kMostBlocks));
    layout.restart_interval = static_cast<uint32_t>(draws.below(5));
    for (size_t b = 0; b < static_cast<size_t>(layout.blocks); ++b) {
        layout.component[b] = static_cast<uint8_t>(draws.below(ScanLayout::kMostComponents));
        layout.dc_table[b] = static_cast<uint8_t>(draws.below(2));
        layout.ac_table[b] = static_cast<uint8_t>(draws.below(2));
        layout.only_dc[b] = draws.below(4) == 0;
    }
    for (size_t t = 0; t < 2; ++t) {
        layout.dc[t] = &codes[t];
        layout.ac[t] = &codes[2 + t];
    }
    EntropyDecoder decoder;
    if (!decoder.begin(bytes, layout)) return;
    std::vector<int16_t> coefficients(ScanLayout::kMostBlocks * 64);
    EntropyDecoder::Block* blocks[ScanLayout::kMostBlocks];
    for (size_t b = 0; b < ScanLayout::kMostBlocks; ++b)
        blocks[b] = reinterpret_cast<EntropyDecoder::Block*>(&coefficients[64 * b]);
    // Each MCU takes bits, except one of codes and values without any, which the layouts here lack.
    for (size_t mcu = 0; mcu <= bytes.size() * 8; ++mcu) {
        std::fill(coefficients.begin(), coefficients.end(), 0);
        if (!(draws.below(2) ? decoder.decode(blocks) : decoder.skip())) return;
    }
    fail("it goes on behind the end");
}

}  // namespace
}  // namespace standpipe

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace standpipe;
    const std::vector<uint8_t> bytes(data, data + size);  // its own allocation: a read past the end shows
    Draws draws(digest_of(bytes));
    if (JpegImage::recognises(bytes)) check_jpeg(bytes, draws);
    if (!JpegImage::recognises(bytes) || draws.below(8) == 0) check_scan(bytes, draws);
    return 0;
}
