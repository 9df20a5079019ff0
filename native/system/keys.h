// Random numbers as pure functions of their key: counter-based, so that any worker gives the same answer.
#pragma once

#include <cstdint>

namespace standpipe {

// The finaliser of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014),
// a bijection of 64-bit words in which every input bit reaches every output bit.
constexpr uint64_t scramble(uint64_t z) noexcept {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ull;  // 2^64 / golden ratio, SplitMix64's increment

// Adds a word to a key. Not commutative: mix(mix(k, a), b) != mix(mix(k, b), a).
constexpr uint64_t mix(uint64_t key, uint64_t word) noexcept {
    return scramble(scramble(key + kGolden) ^ (word * 0xd1342543de82ef95ull + 1));
}

// The key on which all random numbers of a sample depend. Seed and epoch are the same for many rows, position
// is the row's place in the epoch's global order, attempt counts replacements of a bad sample.
struct SampleKey {
    uint64_t epoch_key;  // mix(mix(0, seed), epoch)
    uint64_t position;
    uint64_t attempt;
    // Left, top, width and height of each crop that boxes decide, in pixels; null: there are none.
    const int32_t* windows = nullptr;

    constexpr uint64_t op(uint32_t id) const noexcept {
        return mix(mix(mix(epoch_key, position), id), attempt);
    }

    // Returns the key for one of several outputs of the sample; 0: the sample's own.
    constexpr SampleKey salted(uint64_t salt) const noexcept {
        return salt == 0 ? *this : SampleKey{mix(epoch_key, salt), position, attempt, windows};
    }
};

constexpr uint64_t epoch_key(uint64_t seed, uint64_t epoch) noexcept { return mix(mix(0, seed), epoch); }

// A stream of random numbers for one op of one sample.
class Draws {
  public:
    explicit constexpr Draws(uint64_t key) noexcept : state_(key) {}

    constexpr uint64_t word() noexcept { return scramble(state_ += kGolden); }

    // [0, 1), 53 bits.
    constexpr double uniform() noexcept { return static_cast<double>(word() >> 11) * 0x1.0p-53; }

    constexpr double uniform(double low, double high) noexcept { return low + (high - low) * uniform(); }

    // [0, n) for n in 1..2^32, by the high half of a product (bias below n / 2^32 of 2^-32, not measurable).
    constexpr uint32_t below(uint64_t n) noexcept {
        return static_cast<uint32_t>(((word() >> 32) * n) >> 32);
    }

  private:
    uint64_t state_;
};

}  // namespace standpipe
