// Computes which record is at a position: a keyed bijection of an epoch's positions, in O(1) memory and time.
#pragma once

#include <cstdint>
#include <span>

namespace standpipe {

// out[i] = the record at position start + i of the epoch's shuffled order, a bijection of [0, n). Any split
// of a range gives the same records. n <= 2^62; start + out.size() <= n.
void shuffled_indices(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t start,
                      std::span<int64_t> out) noexcept;

// out[i] = the record at positions[i] of the same order. Positions are below n.
void shuffled_at(uint64_t seed, uint64_t epoch, uint64_t n, std::span<const int64_t> positions,
                 std::span<int64_t> out) noexcept;

// A line of `total` units is cut into n strata, equal to within a unit. Position start + i has the stratum
// that a shuffle by `seed` gives it, strata[i], and a random point in it, points[i]. n < 2^29, n <= total <
// 2^62.
void stratified_points(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t total, uint64_t start,
                       std::span<int64_t> strata, std::span<int64_t> points) noexcept;

// out[i] = the number of the places[i]-th bit that is set, counted from 0, lowest bits of a word first.
// ranks[b] = bits set before word 8b, and at last all; so it has words.size() / 8 + 1 entries. Places are
// below ranks.back().
void marked_at(std::span<const uint64_t> words, std::span<const int64_t> ranks,
               std::span<const int64_t> places, std::span<int64_t> out) noexcept;

}  // namespace standpipe
