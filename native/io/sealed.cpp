#include "io/sealed.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "system/checksum.h"
#include "system/keys.h"

namespace standpipe {
namespace {

// The checksum of a block, little-endian.
uint32_t seal_of(std::span<const uint8_t> data, uint64_t key, uint64_t number) noexcept {
    const uint32_t sum = checksum(data) ^ static_cast<uint32_t>(mix(key, number));
    return std::endian::native == std::endian::big ? __builtin_bswap32(sum) : sum;
}

}  // namespace

void seal(std::span<const uint8_t> data, uint64_t key, uint64_t first, std::span<uint8_t> out) noexcept {
    uint8_t* to = out.data();
    while (!data.empty()) {
        const auto block = data.first(std::min(kDataBytes, data.size()));
        const uint32_t sum = seal_of(block, key, first++);
        std::memcpy(to, block.data(), block.size());
        std::memcpy(to + block.size(), &sum, kSealBytes);
        to += block.size() + kSealBytes;
        data = data.subspan(block.size());
    }
}

std::optional<size_t> unseal(std::span<uint8_t> blocks, uint64_t key, uint64_t first) noexcept {
    for (size_t number = 0; number * kBlockBytes < blocks.size(); ++number) {
        const auto block = blocks.subspan(number * kBlockBytes)
                               .first(std::min(kBlockBytes, blocks.size() - number * kBlockBytes));
        if (block.size() <= kSealBytes) return number;
        const auto data = block.first(block.size() - kSealBytes);
        const uint32_t sum = seal_of(data, key, first + number);
        if (std::memcmp(&sum, data.data() + data.size(), kSealBytes) != 0) return number;
        if (number > 0) std::memmove(blocks.data() + number * kDataBytes, data.data(), data.size());
    }
    return std::nullopt;
}

}  // namespace standpipe
