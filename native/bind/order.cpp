// Binds the computed orders, which give the record at each position.
#include "order/order.h"

#include <nanobind/stl/tuple.h>

#include <utility>

#include "bind/bind.h"
#include "system/keys.h"

namespace standpipe {
namespace {

void bind_shuffles(nb::module_& m) {
    m.def(
        "shuffled_indices",
        [](uint64_t seed, uint64_t epoch, uint64_t n, uint64_t start, uint64_t stop) {
            if (n > (uint64_t{1} << 62)) throw nb::value_error("n must be at most 2**62");
            if (start > stop || stop > n) throw nb::value_error("positions must be in [0, n)");
            return filled<int64_t>(stop - start,
                                   [&](auto out) { shuffled_indices(seed, epoch, n, start, out); });
        },
        "seed"_a, "epoch"_a, "n"_a, "start"_a, "stop"_a,
        "Return the records at positions [start, stop) of an epoch's shuffled order, (stop - start,) int64.");
    m.def(
        "shuffled_at",
        [](uint64_t seed, uint64_t epoch, uint64_t n, Column<int64_t> positions) {
            if (n > (uint64_t{1} << 62)) throw nb::value_error("n must be at most 2**62");
            const std::span<const int64_t> asked(positions.data(), positions.shape(0));
            for (const int64_t position : asked)
                if (position < 0 || static_cast<uint64_t>(position) >= n)
                    throw nb::value_error("positions must be in [0, n)");
            return filled<int64_t>(asked.size(), [&](auto out) { shuffled_at(seed, epoch, n, asked, out); });
        },
        "seed"_a, "epoch"_a, "n"_a, "positions"_a,
        "Return the records at ``positions`` of an epoch's shuffled order, (len(positions),) int64.");
}

void bind_places(nb::module_& m) {
    m.def(
        "stratified_points",
        [](uint64_t seed, uint64_t epoch, uint64_t n, uint64_t total, uint64_t start, uint64_t stop) {
            if (n >= (uint64_t{1} << 29)) throw nb::value_error("n must be below 2**29");
            if (total < n || total >= (uint64_t{1} << 62))
                throw nb::value_error("total must be in [n, 2**62)");
            if (start > stop || stop > n) throw nb::value_error("positions must be in [0, n)");
            Int64s strata(stop - start);
            const auto points = filled<int64_t>(stop - start, [&](auto out) {
                stratified_points(seed, epoch, n, total, start, strata.values(), out);
            });
            return std::make_tuple(std::move(strata).array(), points);
        },
        "seed"_a, "epoch"_a, "n"_a, "total"_a, "start"_a, "stop"_a,
        "Cut a line of ``total`` units into n strata, equal to within a unit, one for each position.\n"
        "Returns the strata of positions [start, stop), and a random point in each, (stop - start,)\n"
        "int64.");
    m.def(
        "marked_at",
        [](Column<uint64_t> words, Column<int64_t> ranks, Column<int64_t> places) {
            const std::span<const uint64_t> bits(words.data(), words.shape(0));
            const std::span<const int64_t> before(ranks.data(), ranks.shape(0));
            if (bits.empty() || bits.size() % 8 != 0 || before.size() != bits.size() / 8 + 1)
                throw nb::value_error("ranks must have an entry for each 8 words, and one more");
            const auto asked = records_of(places, static_cast<uint64_t>(before.back()));
            return filled<int64_t>(asked.size(), [&](auto out) { marked_at(bits, before, asked, out); });
        },
        "words"_a, "ranks"_a, "places"_a,
        "Return the number of the places[i]-th set bit, counted from 0, (len(places),) int64. ``words``:\n"
        "lowest bits first. ``ranks``: set bits before each 8 words, and last the number of all set bits.");
    m.def("mix", &mix, "key"_a, "word"_a,
          "Return a 64-bit key that depends on ``key`` and then on ``word``: their order matters.");
}

}  // namespace

void bind_order(nb::module_& m) {
    bind_shuffles(m);
    bind_places(m);
}

}  // namespace standpipe
