// Decodes the Huffman-coded scans of sequential JPEGs from their original bytes, one MCU after another, or
// passes over MCUs. It stops at anything out of the ordinary, which is called a doubt here: another decoder
// judges it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace standpipe {

// A Huffman table as a file defines it: how many codes there are of each length, and their symbols in order.
struct HuffmanCode {
    std::array<uint8_t, 17> counts{};  // [1] to [16]
    std::array<uint8_t, 256> symbols{};

    bool operator==(const HuffmanCode&) const noexcept = default;
};

// Symbols by the first bits of what follows.
class HuffmanTable {
  public:
    static constexpr int kLookupBits = 11;

    // A code: how many bits it and the value behind it take.
    struct Symbol {
        uint32_t length = 0;  // of the code; 0: these bits are none
        uint32_t size = 0;    // of the value
        uint32_t run = 0;     // zeros before it; only find() says
    };

    // False for a code that can't be.
    bool build(const HuffmanCode& code, bool pairs) noexcept;

    // One symbol or two, of a block's AC coefficients, as far as codes of up to kLookupBits bits hold them:
    //   bits 0–4    bits of all codes and values
    //   bits 5–8    bits before the first value
    //   bits 9–12   bits of the first value
    //   bits 13–17  how far the first coefficient is from the one before
    //   bits 18–30  the same three of the second symbol, its distance being that from the first. Without a
    //   second
    //               symbol they store the first one again
    //   bit 31      the block ends behind them
    // An end of block alone stores a zero at the next place. 0: find() knows.
    uint32_t pair(uint64_t window) const noexcept { return entries_[window >> (64 - kLookupBits)]; }

    // Returns the first symbol, for any length of its code.
    Symbol first(uint64_t window) const noexcept {
        const uint32_t entry = pair(window);
        if (!entry) return find(window);
        return {entry >> 5 & 15, entry >> 9 & 15, 0};
    }
    Symbol find(uint64_t window) const noexcept;

  private:
    void build_pairs() noexcept;

    HuffmanCode code_;
    std::array<uint32_t, 1 << kLookupBits> entries_;
    std::array<int32_t, 17> last_;    // the last code of each length, -1 for none
    std::array<int32_t, 17> offset_;  // from a code of each length to its symbol's place
    bool built_ = false;
};

// The layout of a scan's MCUs.
struct ScanLayout {
    static constexpr int kMostBlocks = 10, kMostComponents = 4;

    int blocks = 0;  // in an MCU
    std::array<uint8_t, kMostBlocks> component{}, dc_table{}, ac_table{};
    std::array<bool, kMostBlocks> only_dc{};  // of such a block no other coefficient is wanted
    std::array<const HuffmanCode*, kMostComponents> dc{}, ac{};  // those that blocks name; others are null
    uint32_t restart_interval = 0;  // MCUs from one restart marker to the next; 0: none
};

class EntropyDecoder {
  public:
    using Block = int16_t[64];

    // Starts at the first byte of a scan's data; `bytes` must outlive the calls below. False for a doubt.
    bool begin(std::span<const uint8_t> bytes, const ScanLayout& layout);

    // The next MCU, into zeroed blocks whose coefficients are in natural order. False for a doubt: no call
    // may follow.
    bool decode(Block* const* blocks) noexcept;
    bool skip() noexcept;

    // After a scan's last MCU: the marker that follows; null where other bits do.
    const uint8_t* marker() noexcept;

  private:
    static constexpr size_t kChunk = 16 << 10;
    static constexpr size_t kMostMcu = ScanLayout::kMostBlocks * 64 * 4;  // a symbol takes at most 31 bits
    static constexpr size_t kPadding = kMostMcu + 64;

    struct Reader;
    void refill_chunk() noexcept;
    bool begin_mcu() noexcept;
    bool restart() noexcept;
    template <typename Take>
    bool each_block(Take take) noexcept;
    bool within_segment() const noexcept;

    std::array<HuffmanTable, ScanLayout::kMostComponents> dc_tables_, ac_tables_;
    ScanLayout layout_;
    std::array<uint32_t, ScanLayout::kMostComponents> last_dc_{};
    const uint8_t *source_ = nullptr, *source_end_ = nullptr;  // bytes that aren't in the chunk yet
    uint64_t window_ = 0;                                      // next bits, from the highest
    int held_ = 0;                                             // of them are valid
    const uint8_t *next_ = nullptr, *end_ = nullptr;           // in the chunk: next byte, and behind its last
    bool ended_ = false;                                       // end_ is the segment's end
    uint32_t until_restart_ = 0;
    uint8_t next_restart_ = 0;
    std::array<uint8_t, kChunk + kPadding> chunk_;  // without stuffed zeros
};

}  // namespace standpipe
