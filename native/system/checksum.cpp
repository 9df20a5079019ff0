#include "system/checksum.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>

#include "simd/cpu.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace standpipe {
namespace {

constexpr size_t kLanes = 4, kWord = 8, kGroup = kLanes * kWord;
constexpr uint32_t kPolynomial = 0x82f63b78;  // CRC-32C's, reflected

// entry [n][b]: what byte b does to the state n bytes later
using Tables = std::array<std::array<uint32_t, 256>, kWord>;

constexpr Tables make_tables() {
    Tables tables{};
    for (uint32_t byte = 0; byte < 256; ++byte) {
        uint32_t state = byte;
        for (int bit = 0; bit < 8; ++bit) state = state >> 1 ^ (state & 1 ? kPolynomial : 0);
        tables[0][byte] = state;
    }
    for (size_t n = 1; n < kWord; ++n)
        for (size_t byte = 0; byte < 256; ++byte) {
            const uint32_t before = tables[n - 1][byte];
            tables[n][byte] = before >> 8 ^ tables[0][before & 0xff];
        }
    return tables;
}

constexpr Tables kTables = make_tables();

// A word's first byte in memory counts first, on machines of either byte order.
uint64_t word_at(const uint8_t* bytes) noexcept {
    uint64_t word;
    std::memcpy(&word, bytes, kWord);
    if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
    return word;
}

using Lanes = std::array<uint32_t, kLanes>;

constexpr uint32_t step(uint32_t state, uint64_t word) noexcept {
    word ^= state;
    uint32_t next = 0;
    for (size_t i = 0; i < kWord; ++i) next ^= kTables[kWord - 1 - i][word >> (8 * i) & 0xff];
    return next;
}

// `groups` words into each lane. Once for each instruction set, since a function that has an instruction
// isn't inlined into one that may not have it.

Lanes fill_by_table(const uint8_t* at, size_t groups) noexcept {
    Lanes lanes{~0u, ~0u, ~0u, ~0u};
    for (; groups > 0; --groups)
        for (uint32_t& lane : lanes) lane = step(lane, word_at(std::exchange(at, at + kWord)));
    return lanes;
}

#if defined(__x86_64__)
[[gnu::target("sse4.2,crc32")]] Lanes fill_by_sse42(const uint8_t* at, size_t groups) noexcept {
    uint64_t a = ~0u, b = ~0u, c = ~0u, d = ~0u;
    for (; groups > 0; --groups, at += kGroup) {
        a = _mm_crc32_u64(a, word_at(at));
        b = _mm_crc32_u64(b, word_at(at + kWord));
        c = _mm_crc32_u64(c, word_at(at + 2 * kWord));
        d = _mm_crc32_u64(d, word_at(at + 3 * kWord));
    }
    return {static_cast<uint32_t>(a), static_cast<uint32_t>(b), static_cast<uint32_t>(c),
            static_cast<uint32_t>(d)};
}
#elif defined(__aarch64__)
[[gnu::target("+crc")]] Lanes fill_by_armv8(const uint8_t* at, size_t groups) noexcept {
    uint32_t a = ~0u, b = ~0u, c = ~0u, d = ~0u;
    for (; groups > 0; --groups, at += kGroup) {
        a = __crc32cd(a, word_at(at));
        b = __crc32cd(b, word_at(at + kWord));
        c = __crc32cd(c, word_at(at + 2 * kWord));
        d = __crc32cd(d, word_at(at + 3 * kWord));
    }
    return {a, b, c, d};
}
#endif

// CRC-32C of whole words, one after another.

uint32_t words_by_table(uint32_t state, const uint8_t* at, size_t words) noexcept {
    for (; words > 0; --words, at += kWord) state = step(state, word_at(at));
    return state;
}

#if defined(__x86_64__)
constexpr size_t kStretch = 128;  // words of each of three that are taken at once, as CRC-32C is linear

// entry [n][b]: what byte n of a state, with the value b, becomes after a stretch of zeros
constexpr auto kAfterStretch = [] {
    std::array<std::array<uint32_t, 256>, 4> after{};
    for (size_t bit = 0; bit < 32; ++bit) {
        uint32_t state = uint32_t{1} << bit;
        for (size_t i = 0; i < kStretch; ++i) state = step(state, 0);
        for (size_t byte = 0; byte < 256; ++byte)
            if (byte >> bit % 8 & 1) after[bit / 8][byte] ^= state;
    }
    return after;
}();

uint32_t after_stretch(uint32_t state) noexcept {
    uint32_t after = 0;
    for (size_t i = 0; i < 4; ++i) after ^= kAfterStretch[i][state >> (8 * i) & 0xff];
    return after;
}

[[gnu::target("sse4.2,crc32")]] uint32_t words_by_sse42(uint32_t state, const uint8_t* at,
                                                        size_t words) noexcept {
    uint64_t wide = state;
    constexpr size_t kBytes = kStretch * kWord;
    for (; words >= 3 * kStretch; words -= 3 * kStretch, at += 2 * kBytes) {
        uint64_t second = 0, third = 0;
        for (size_t i = 0; i < kStretch; ++i, at += kWord) {
            wide = _mm_crc32_u64(wide, word_at(at));
            second = _mm_crc32_u64(second, word_at(at + kBytes));
            third = _mm_crc32_u64(third, word_at(at + 2 * kBytes));
        }
        const uint32_t two = after_stretch(static_cast<uint32_t>(wide)) ^ static_cast<uint32_t>(second);
        wide = after_stretch(two) ^ static_cast<uint32_t>(third);
    }
    for (; words > 0; --words, at += kWord) wide = _mm_crc32_u64(wide, word_at(at));
    return static_cast<uint32_t>(wide);
}
#elif defined(__aarch64__)
[[gnu::target("+crc")]] uint32_t words_by_armv8(uint32_t state, const uint8_t* at, size_t words) noexcept {
    for (; words > 0; --words, at += kWord) state = __crc32cd(state, word_at(at));
    return state;
}
#endif

// A bijection that is not linear, as CRCs are (MurmurHash3's finaliser). Without it a change in one lane and
// the same change 16 bytes on, in another one, would cancel each other.
uint32_t scattered(uint32_t lane) noexcept {
    lane = (lane ^ lane >> 16) * 0x85ebca6bu;
    lane = (lane ^ lane >> 13) * 0xc2b2ae35u;
    return lane ^ lane >> 16;
}

template <Lanes (*Fill)(const uint8_t*, size_t) noexcept>
uint32_t take(std::span<const uint8_t> bytes) noexcept {
    const Lanes lanes = Fill(bytes.data(), bytes.size() / kGroup);
    uint32_t state = ~0u;
    for (size_t i = 0; i < kLanes; i += 2)
        state = step(state, uint64_t{scattered(lanes[i + 1])} << 32 | scattered(lanes[i]));
    const size_t left = bytes.size() % kGroup;
    uint8_t rest[kGroup] = {};
    if (left > 0) std::memcpy(rest, bytes.data() + bytes.size() - left, left);
    for (size_t i = 0; i < left; i += kWord) state = step(state, word_at(rest + i));
    return ~step(state, bytes.size());
}

constexpr ChecksumPath kTable = {"table", &take<fill_by_table>};
#if defined(__x86_64__)
constexpr ChecksumPath kSse42 = {"sse4.2", &take<fill_by_sse42>};
#elif defined(__aarch64__)
constexpr ChecksumPath kArmv8 = {"armv8", &take<fill_by_armv8>};
#endif

auto best_words() noexcept {
#if defined(__x86_64__)
    if (checksum_path(kSse42.name)) return &words_by_sse42;
#elif defined(__aarch64__)
    if (checksum_path(kArmv8.name)) return &words_by_armv8;
#endif
    return &words_by_table;
}

const ChecksumPath& best_path() noexcept {
    for (const char* name : {"sse4.2", "armv8"})
        if (const ChecksumPath* path = checksum_path(name)) return *path;
    return kTable;
}

}  // namespace

const ChecksumPath* checksum_path(const char* name) noexcept {
    if (!std::strcmp(name, kTable.name)) return &kTable;
#if defined(__x86_64__)
    if (!std::strcmp(name, kSse42.name)) return this_cpu().sse42 ? &kSse42 : nullptr;
#elif defined(__aarch64__)
    if (!std::strcmp(name, kArmv8.name)) return getauxval(AT_HWCAP) & HWCAP_CRC32 ? &kArmv8 : nullptr;
#endif
    return nullptr;
}

uint32_t crc32c(std::span<const uint8_t> bytes, uint32_t before) noexcept {
    static const auto words_of = best_words();
    const size_t words = bytes.size() / kWord;
    uint32_t state = words_of(~before, bytes.data(), words);
    for (const uint8_t byte : bytes.subspan(words * kWord))
        state = state >> 8 ^ kTables[0][(state ^ byte) & 0xff];
    return ~state;
}

uint32_t checksum(std::span<const uint8_t> bytes) noexcept {
    static const ChecksumPath& path = best_path();
    return path.take(bytes);
}

}  // namespace standpipe
