// Moves, sizes and points on their way between NumPy and native code.
#pragma once

#include <algorithm>
#include <vector>

#include "bind/bind.h"
#include "image/trace.h"

namespace standpipe {

using MoveArray = nb::ndarray<const double, nb::shape<-1, -1, kMoveNumbers>, nb::c_contig, nb::device::cpu>;
using Points = nb::ndarray<const float, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;
using SizeArray = nb::ndarray<const int64_t, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;

inline std::vector<Size> sizes_of(const SizeArray& array) {
    std::vector<Size> sizes;
    for (size_t i = 0; i < array.shape(0); ++i)
        sizes.push_back({static_cast<int>(array.data()[2 * i]), static_cast<int>(array.data()[2 * i + 1])});
    return sizes;
}

// Returns the moves of n pictures of `sizes`, (n, moves, 12), flat. Pictures with fewer moves than the others
// get moves that change nothing.
inline Numbers<double>::Array numbers_of(std::vector<std::vector<Move>>& rows,
                                         const std::vector<Size>& sizes) {
    size_t most = 0;
    for (const auto& moves : rows) most = std::max(most, moves.size());
    Numbers<double> numbers(rows.size() * most * kMoveNumbers);
    double* next = numbers.values().data();
    for (size_t i = 0; i < rows.size(); ++i) {
        Move none{{1, 0, 0, 0, 1, 0, 0, 0, 1}, sizes[i].height, sizes[i].width};
        if (!rows[i].empty()) none.height = rows[i].back().height, none.width = rows[i].back().width;
        rows[i].resize(most, none);
        for (const Move& move : rows[i]) {
            next = std::copy(move.matrix.begin(), move.matrix.end(), next);
            *next++ = move.height;
            *next++ = move.width;
            *next++ = static_cast<double>(move.kind);
        }
    }
    return std::move(numbers).array();
}

}  // namespace standpipe
