#include "image/entropy.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace standpipe {
namespace {

constexpr uint8_t kFirstRestart = 0xd0;

// Zigzag to natural order. Every step of a block ends at 63 or before.
constexpr std::array<uint8_t, 64> kNatural = {0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,
                                              12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28,
                                              35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
                                              58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

constexpr uint32_t kBlockEnds = 1u << 31;

// Of an entry's fields.
constexpr int kFirst = 5, kSecond = 18;
uint32_t place_of(uint32_t entry, int at) noexcept { return entry >> (at + 8) & 31; }

uint32_t fields(int at, uint32_t before, uint32_t size, uint32_t step) noexcept {
    return (before | size << 4 | step << 8) << at;
}

bool ends_block(uint32_t run, uint32_t size) noexcept { return size == 0 && run != 15; }

uint64_t big_endian(const uint8_t* bytes) noexcept {
    uint64_t word;
    std::memcpy(&word, bytes, sizeof word);
    if constexpr (std::endian::native == std::endian::little) word = __builtin_bswap64(word);
    return word;
}

// A signed value of `size` bits behind `before` others. The first bit is 0 for negative ones.
int value_of(uint64_t window, uint32_t before, uint32_t size) noexcept {
    const uint64_t bits = window << before;
    const auto negative = ~static_cast<uint64_t>(static_cast<int64_t>(bits) >> 63);
    const auto magnitude = static_cast<int64_t>(((bits ^ negative) >> 1) >> (63 - size));
    const auto sign = static_cast<int64_t>(negative);
    return static_cast<int>((magnitude ^ sign) - sign);
}

int value_at(uint64_t window, uint32_t entry, int at) noexcept {
    return value_of(window, entry >> at & 15, entry >> (at + 4) & 15);
}

}  // namespace

bool HuffmanTable::build(const HuffmanCode& code, bool pairs) noexcept {
    if (built_ && code == code_) return true;
    code_ = code;
    built_ = false;
    entries_.fill(0);
    size_t filled = 0;
    int next = 0, place = 0;
    for (int length = 1; length <= 16; ++length, next <<= 1) {
        const int count = code.counts[static_cast<size_t>(length)];
        if (place + count > 256 || next + count > 1 << length) return false;
        offset_[static_cast<size_t>(length)] = place - next;
        for (int i = 0; i < count && length <= kLookupBits; ++i) {
            const uint32_t symbol = code.symbols[static_cast<size_t>(place + i)], size = symbol & 15,
                           run = symbol >> 4;
            const size_t copies = size_t{1} << (kLookupBits - length);
            const auto bits = static_cast<uint32_t>(length);
            const bool ends = ends_block(run, size);
            std::fill_n(entries_.begin() + static_cast<std::ptrdiff_t>(filled), copies,
                        (bits + size) | fields(kFirst, bits, size, ends ? 1 : run + 1) |
                            fields(kSecond, bits, size, 0) | (ends ? kBlockEnds : 0));
            filled += copies;
        }
        next += count;
        place += count;
        last_[static_cast<size_t>(length)] = count ? next - 1 : -1;
    }
    if (pairs) build_pairs();
    built_ = true;
    return true;
}

// Adds to each entry the symbol that follows, where its code is within the bits that are known.
void HuffmanTable::build_pairs() noexcept {
    constexpr uint32_t kKnown = 1 << kLookupBits;
    const std::array<uint32_t, kKnown> singles = entries_;
    for (uint32_t from = 0; from < kKnown;) {
        const uint32_t first = singles[from], used = first & 31, length = first >> kFirst & 15;
        if (first == 0) return;
        const uint32_t group = kKnown >> length;  // entries of this code
        if (used < kLookupBits && !(first & kBlockEnds)) {
            const uint32_t tails = kKnown >> used;
            for (uint32_t tail = 0; tail < tails; ++tail) {
                const uint32_t second = singles[tail << used];
                const uint32_t second_length = second >> kFirst & 15;
                if (second == 0 || used + second_length > kLookupBits) continue;
                uint32_t both = (first & ~uint32_t{31}) | (used + (second & 31));
                if (second & kBlockEnds) {
                    both |= kBlockEnds;
                } else {
                    both &= (1u << kSecond) - 1;
                    both |= fields(kSecond, used + second_length, second >> (kFirst + 4) & 15,
                                   place_of(second, kFirst));
                }
                entries_[from + tail] = both;
            }
            for (uint32_t copy = tails; copy < group; copy += tails)
                std::copy_n(entries_.begin() + from, tails, entries_.begin() + from + copy);
        }
        from += group;
    }
}

HuffmanTable::Symbol HuffmanTable::find(uint64_t window) const noexcept {
    for (int length = 1; length <= 16; ++length) {
        const auto bits = static_cast<int>(window >> (64 - length));
        if (bits > last_[static_cast<size_t>(length)]) continue;
        const uint32_t symbol =
            code_.symbols[static_cast<uint8_t>(bits + offset_[static_cast<size_t>(length)])];
        return {static_cast<uint32_t>(length), symbol & 15, symbol >> 4};
    }
    return {};
}

// The bit position in locals, so that it stays in registers.
struct EntropyDecoder::Reader {
    uint64_t window;
    int held;
    const uint8_t* next;

    // At least 56 bits, of which those behind the segment's end are zeros.
    void fill() noexcept {
        window |= big_endian(next) >> held;
        next += (63 - held) >> 3;
        held |= 56;
    }
    void drop(uint32_t bits) noexcept {
        window <<= bits;
        held -= static_cast<int>(bits);
    }
};

bool EntropyDecoder::begin(std::span<const uint8_t> bytes, const ScanLayout& layout) {
    layout_ = layout;
    for (size_t t = 0; t < ScanLayout::kMostComponents; ++t) {
        if (layout.dc[t] && !dc_tables_[t].build(*layout.dc[t], false)) return false;
        if (layout.ac[t] && !ac_tables_[t].build(*layout.ac[t], true)) return false;
    }
    last_dc_.fill(0);
    source_ = bytes.data();
    source_end_ = bytes.data() + bytes.size();
    next_ = end_ = chunk_.data();
    window_ = 0;
    held_ = 0;
    ended_ = false;
    until_restart_ = layout.restart_interval;
    next_restart_ = 0;
    refill_chunk();
    return true;
}

// Moves what is left to the front and copies more, until the chunk is full or a marker ends the segment.
void EntropyDecoder::refill_chunk() noexcept {
    const auto left = static_cast<size_t>(end_ - next_);
    std::memmove(chunk_.data(), next_, left);
    next_ = chunk_.data();
    uint8_t* out = chunk_.data() + left;
    uint8_t* const full = chunk_.data() + kChunk;
    while (out < full && !ended_) {
        if (source_ == source_end_) {
            ended_ = true;
            break;
        }
        const auto most = static_cast<size_t>(std::min(source_end_ - source_, full - out));
        const void* const found = std::memchr(source_, 0xff, most);
        const auto plain = found ? static_cast<size_t>(static_cast<const uint8_t*>(found) - source_) : most;
        std::memcpy(out, source_, plain);
        out += plain;
        source_ += plain;
        if (!found) continue;
        if (source_end_ - source_ >= 2 && source_[1] == 0) {
            *out++ = 0xff;
            source_ += 2;
        } else {
            ended_ = true;
        }
    }
    end_ = out;
    std::memset(out, 0, kPadding);
}

bool EntropyDecoder::within_segment() const noexcept { return (next_ - end_) * 8 - held_ <= 0; }

// After the last MCU of an interval: fewer bits than a byte, then the marker.
bool EntropyDecoder::restart() noexcept {
    const uint8_t* const at = marker();
    if (!at || at[1] != kFirstRestart + next_restart_) return false;
    next_restart_ = (next_restart_ + 1) % 8;
    source_ = at + 2;
    next_ = end_ = chunk_.data();
    window_ = 0;
    held_ = 0;
    ended_ = false;
    last_dc_.fill(0);
    until_restart_ = layout_.restart_interval;
    refill_chunk();
    return true;
}

const uint8_t* EntropyDecoder::marker() noexcept {
    const bool all_read = ended_ && (end_ - next_) * 8 + held_ < 8;
    return all_read && source_end_ - source_ >= 2 ? source_ : nullptr;
}

bool EntropyDecoder::begin_mcu() noexcept {
    if (layout_.restart_interval) {
        if (until_restart_ == 0 && !restart()) return false;
        --until_restart_;
    }
    if (end_ - next_ < static_cast<std::ptrdiff_t>(kMostMcu) && !ended_) refill_chunk();
    return true;
}

// `take` passes over the coefficients of a block behind its first one, which it is given.
template <typename Take>
bool EntropyDecoder::each_block(Take take) noexcept {
    if (!begin_mcu()) return false;
    Reader reader{window_, held_, next_};
    for (int b = 0; b < layout_.blocks; ++b) {
        const auto i = static_cast<size_t>(b);
        const HuffmanTable& table = dc_tables_[layout_.dc_table[i]];
        reader.fill();
        const HuffmanTable::Symbol symbol = table.first(reader.window);
        if (symbol.length == 0) return false;
        uint32_t& dc = last_dc_[layout_.component[i]];
        dc += static_cast<uint32_t>(value_of(reader.window, symbol.length, symbol.size));
        reader.drop(symbol.length + symbol.size);
        if (!take(reader, ac_tables_[layout_.ac_table[i]], b, static_cast<int16_t>(dc))) return false;
    }
    window_ = reader.window;
    held_ = reader.held;
    next_ = reader.next;
    return within_segment();
}

namespace {

// Two look-ups after each fill: a pair takes at most kLookupBits + 15 bits.
template <typename Reader, typename Store>
bool take_symbols(Reader& reader, const HuffmanTable& table, Store store) noexcept {
    for (uint32_t place = 0;;) {
        reader.fill();
        for (int i = 0; i < 2; ++i) {
            const uint64_t window = reader.window;
            const uint32_t entry = table.pair(window);
            const uint32_t first = place + place_of(entry, kFirst), second = first + place_of(entry, kSecond);
            if (!entry || second + (entry >> 31) > 63) [[unlikely]] {
                reader.fill();
                const HuffmanTable::Symbol symbol = table.find(reader.window);
                if (symbol.length == 0) return false;
                const int value = value_of(reader.window, symbol.length, symbol.size);
                reader.drop(symbol.length + symbol.size);
                if (ends_block(symbol.run, symbol.size)) return true;
                place += symbol.run + 1;
                if (place > 63) return false;
                store(place, value);
                if (place == 63) return true;
                break;
            }
            store(first, value_at(window, entry, kFirst));
            store(second, value_at(window, entry, kSecond));
            reader.drop(entry & 31);
            place = second;
            if (entry & kBlockEnds) return true;
            if (place == 63) return true;
        }
    }
}

}  // namespace

bool EntropyDecoder::decode(Block* const* blocks) noexcept {
    return each_block([&](Reader& reader, const HuffmanTable& table, int b, int16_t dc) {
        int16_t* const block = *blocks[b];
        block[0] = dc;
        if (layout_.only_dc[static_cast<size_t>(b)]) return take_symbols(reader, table, [](uint32_t, int) {});
        return take_symbols(reader, table, [block](uint32_t place, int value) {
            block[kNatural[place]] = static_cast<int16_t>(value);
        });
    });
}

bool EntropyDecoder::skip() noexcept {
    return each_block([](Reader& reader, const HuffmanTable& table, int, int16_t) {
        return take_symbols(reader, table, [](uint32_t, int) {});
    });
}

}  // namespace standpipe
