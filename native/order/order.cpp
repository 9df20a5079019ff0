#include "order/order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>

#include "system/keys.h"

namespace standpipe {
namespace {

// Above every position, so that no sample's draws share the order's key.
constexpr uint64_t kOrderStream = 1ull << 63;

// Above every position too: what draws in strata are keyed by.
constexpr uint64_t kDrawStream = 1ull << 63;

// Up to here a table, 2 KiB of stack and 3 µs a call: a Feistel network on a grid this small shows.
constexpr uint64_t kTablePositions = 1024;

// Number of rounds. After R rounds, two cells of one column stay at their distance with a probability that is
// n^(-R/4) too high. At n = 1025 this shows in 3,000 orders with 6 rounds, so in about 4 million with 8.
constexpr int kRounds = 8;

// Cells in flight at once. A round is a chain of three multiplications: one chain leaves the core half idle.
constexpr size_t kLanes = 4;

// A range of positions, and its cells on a grid one after another.
class Range {
  public:
    explicit Range(uint64_t start) noexcept : start_(start) {}

    uint64_t operator[](size_t i) const noexcept { return start_ + i; }

    template <typename Grid>
    auto cells(const Grid& grid) const noexcept {
        return [&grid, next = grid.cell(start_)](size_t) mutable {
            const auto cell = next;
            next = grid.after(next);
            return cell;
        };
    }

  private:
    uint64_t start_;
};

// Positions in any order. Positions past their end are the last one again.
class Scattered {
  public:
    explicit Scattered(std::span<const int64_t> positions) noexcept : positions_(positions) {}

    uint64_t operator[](size_t i) const noexcept { return static_cast<uint64_t>(positions_[i]); }

    template <typename Grid>
    auto cells(const Grid& grid) const noexcept {
        return [&grid, this](size_t i) { return grid.cell((*this)[std::min(i, positions_.size() - 1)]); };
    }

  private:
    std::span<const int64_t> positions_;
};

template <typename Positions>
void shuffle_by_table(uint64_t key, uint64_t n, const Positions& positions, std::span<int64_t> out) noexcept {
    std::array<uint16_t, kTablePositions> table{};
    Draws draws(key);
    for (uint64_t i = 0; i < n; ++i) {  // Fisher-Yates, inside out
        const uint32_t j = draws.below(i + 1);
        table[i] = table[j];
        table[j] = static_cast<uint16_t>(i);
    }
    for (size_t i = 0; i < out.size(); ++i) out[i] = table[positions[i]];
}

// The smallest a with a * a >= n.
uint64_t ceil_sqrt(uint64_t n) noexcept {
    auto a = static_cast<uint64_t>(std::sqrt(static_cast<double>(n)));
    while (a * a < n) ++a;
    while ((a - 1) * (a - 1) >= n) --a;
    return a;
}

// A 64-bit word to [0, bound), by the high half of a product.
inline uint64_t scale(uint64_t word, uint64_t bound) noexcept {
    __extension__ using Wide = unsigned __int128;
    return static_cast<uint64_t>((static_cast<Wide>(word) * bound) >> 64);
}

// (value + shift) mod bound, for both below bound.
inline uint64_t turn(uint64_t value, uint64_t shift, uint64_t bound) noexcept {
    const uint64_t sum = value + shift;
    return sum >= bound ? sum - bound : sum;
}

struct Cell {
    uint64_t row, column;
};

// A Feistel network whose halves are the row and the column of a cell, on a grid of at least n cells and
// fewer than sqrt(n) more. A round turns the row by an amount drawn from the column, the next one the column
// by an amount drawn from the row. Each can be undone, so all of them are a bijection of the grid.
class Grid {
  public:
    Grid(uint64_t key, uint64_t n) noexcept : n_(n), rows_(ceil_sqrt(n)), columns_((n + rows_ - 1) / rows_) {
        Draws draws(key);
        for (uint64_t& round : keys_) round = draws.word();
    }

    Cell cell(uint64_t position) const noexcept { return {position / columns_, position % columns_}; }

    Cell after(Cell at) const noexcept {
        return at.column + 1 < columns_ ? Cell{at.row, at.column + 1} : Cell{at.row + 1, 0};
    }

    template <size_t lanes>
    void permute(std::array<Cell, lanes>& cells) const noexcept {
        for (int round = 0; round < kRounds; round += 2) {
            for (auto& [row, column] : cells)
                row = turn(row, scale(scramble(keys_[round] + column), rows_), rows_);
            for (auto& [row, column] : cells)
                column = turn(column, scale(scramble(keys_[round + 1] + row), columns_), columns_);
        }
    }

    // The record of a permuted cell. One outside [0, n) is permuted until it falls inside, which keeps the
    // bijection; fewer than one cell in sqrt(n) has to.
    uint64_t record(Cell at) const noexcept {
        std::array<Cell, 1> walker{at};
        while (number(walker[0]) >= n_) permute(walker);
        return number(walker[0]);
    }

  private:
    uint64_t number(Cell at) const noexcept { return at.row * columns_ + at.column; }

    uint64_t n_, rows_, columns_;
    std::array<uint64_t, kRounds> keys_;
};

template <typename Positions>
void shuffle_by_grid(uint64_t key, uint64_t n, const Positions& positions, std::span<int64_t> out) noexcept {
    if (out.empty()) return;
    const Grid grid(key, n);
    auto cell_of = positions.cells(grid);
    for (size_t done = 0; done < out.size(); done += kLanes) {
        std::array<Cell, kLanes> cells;  // those past the end of out are permuted and not used
        for (size_t i = 0; i < kLanes; ++i) cells[i] = cell_of(done + i);
        grid.permute(cells);
        const size_t filled = std::min(kLanes, out.size() - done);
        for (size_t i = 0; i < filled; ++i) out[done + i] = static_cast<int64_t>(grid.record(cells[i]));
    }
}

template <typename Positions>
void shuffle(uint64_t seed, uint64_t epoch, uint64_t n, const Positions& positions,
             std::span<int64_t> out) noexcept {
    const uint64_t key = mix(epoch_key(seed, epoch), kOrderStream);
    if (n <= kTablePositions) shuffle_by_table(key, n, positions, out);
    else shuffle_by_grid(key, n, positions, out);
}

// The last block with at most `place` marks before it: from where it were if marks were spread evenly, in
// steps that double, and then by halves.
size_t block_of(std::span<const int64_t> ranks, int64_t place, double blocks_per_mark) noexcept {
    const size_t last = ranks.size() - 2;
    size_t low = std::min(static_cast<size_t>(static_cast<double>(place) * blocks_per_mark), last),
           high = low + 1;
    for (size_t step = 1; ranks[low] > place; step *= 2) {
        high = low;
        low -= std::min(step, low);
    }
    for (size_t step = 1; high <= last && ranks[high] <= place; step *= 2) {
        low = high;
        high = std::min(high + step, last + 1);
    }
    const auto* const first = ranks.data();
    return static_cast<size_t>(std::upper_bound(first + low, first + high, place) - first) - 1;
}

// Returns the position of the bit that has n set bits below it.
int nth_bit(uint64_t word, int n) noexcept {
    uint64_t counts = word - ((word >> 1) & 0x5555555555555555ull);
    counts = (counts & 0x3333333333333333ull) + ((counts >> 2) & 0x3333333333333333ull);
    counts = ((counts + (counts >> 4)) & 0x0f0f0f0f0f0f0f0full) * 0x0101010101010101ull;
    int shift = 0;  // of the byte it is in; each byte of counts has the ones up to that byte
    while (shift < 56 && static_cast<int>((counts >> shift) & 0xff) <= n) shift += 8;
    if (shift > 0) n -= static_cast<int>((counts >> (shift - 8)) & 0xff);
    uint64_t byte = word >> shift;
    for (; n > 0; --n) byte &= byte - 1;
    return shift + std::countr_zero(byte);
}

}  // namespace

void shuffled_indices(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t start,
                      std::span<int64_t> out) noexcept {
    shuffle(seed, epoch, n, Range(start), out);
}

void shuffled_at(uint64_t seed, uint64_t epoch, uint64_t n, std::span<const int64_t> positions,
                 std::span<int64_t> out) noexcept {
    shuffle(seed, epoch, n, Scattered(positions), out);
}

void stratified_points(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t total, uint64_t start,
                       std::span<int64_t> strata, std::span<int64_t> points) noexcept {
    shuffled_indices(seed, epoch, n, start, strata);
    const uint64_t key = mix(mix(seed, epoch), kDrawStream);
    const uint64_t whole = total / n, rest = total % n;
    const auto begin_of = [&](uint64_t stratum) { return stratum * whole + stratum * rest / n; };
    for (size_t i = 0; i < points.size(); ++i) {
        const auto stratum = static_cast<uint64_t>(strata[i]);
        const uint64_t begin = begin_of(stratum), width = begin_of(stratum + 1) - begin;
        const double uniform = static_cast<double>(mix(key, start + i) >> 11) * 0x1.0p-53;
        const auto inside = static_cast<uint64_t>(uniform * static_cast<double>(width));
        points[i] = static_cast<int64_t>(begin + std::min(inside, width - 1));
    }
}

void marked_at(std::span<const uint64_t> words, std::span<const int64_t> ranks,
               std::span<const int64_t> places, std::span<int64_t> out) noexcept {
    const auto blocks_per_mark = static_cast<double>(ranks.size() - 1) / static_cast<double>(ranks.back());
    for (size_t i = 0; i < places.size(); ++i) {
        const size_t block = block_of(ranks, places[i], blocks_per_mark);
        auto left = static_cast<int>(places[i] - ranks[block]);
        size_t at = block * 8;
        int count = std::popcount(words[at]);
        while (left >= count && at + 1 < words.size()) {
            left -= count;
            count = std::popcount(words[++at]);
        }
        out[i] = static_cast<int64_t>(at * 64) + nth_bit(words[at], left);
    }
}

}  // namespace standpipe
