// Sealed bytes: blocks of a file that each end with their checksum, so that no damage to one is believed.
//
// A block's checksum depends on a key and on the block's number too. A block that is whole, but stands in the
// wrong place or comes from another file, is damage as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace standpipe {

// A row read at random costs a block: checking 512 bytes takes 40 ns, the call that reads them a microsecond.
constexpr size_t kBlockBytes = 512;
constexpr size_t kSealBytes = sizeof(uint32_t);
constexpr size_t kDataBytes = kBlockBytes - kSealBytes;  // of each block but the last, which may be shorter

// Returns the number of blocks that hold `size` bytes of data.
constexpr uint64_t blocks_for(uint64_t size) noexcept { return size / kDataBytes + (size % kDataBytes != 0); }

// Returns the bytes of a file that these blocks take.
constexpr uint64_t sealed_size(uint64_t size) noexcept { return size + kSealBytes * blocks_for(size); }

// Writes blocks `first`, `first + 1`, … of `data` to `out`, which has sealed_size(data.size()) bytes.
void seal(std::span<const uint8_t> data, uint64_t key, uint64_t first, std::span<uint8_t> out) noexcept;

// Checks blocks `first`, `first + 1`, … and moves their data together at the beginning of `blocks`. Returns
// which of `blocks` is damaged first; nothing when none is.
std::optional<size_t> unseal(std::span<uint8_t> blocks, uint64_t key, uint64_t first) noexcept;

}  // namespace standpipe
