// A job as Python sees it.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "bind/bind.h"
#include "bind/moves.h"
#include "pool/pool.h"

namespace standpipe {

inline void check_rows(size_t have, int rows, const char* what) {
    if (have != static_cast<size_t>(rows)) throw nb::value_error(what);
}

// A job, and the arrays that it reads. They live as long as the Python object.
struct SubmittedJob {
    std::shared_ptr<Job> job;
    std::vector<nb::object> arrays;
};

// Returns the number of rows in the slot up to the last one that the job makes.
inline size_t rows_spanned(const Job& job) {
    if (!job.slot_rows) return static_cast<size_t>(job.rows);
    return static_cast<size_t>(*std::ranges::max_element(*job.slot_rows)) + 1;
}

// Makes the rows frames, instead of rows of a slot. `frames`: of each row of the slot.
void attach_frames(SubmittedJob& s, std::vector<std::shared_ptr<ImageFrame>> frames);

// Makes rows of frames. `numbers`: of those of each row.
void attach_composer(SubmittedJob& s, std::shared_ptr<Composer> composer,
                     std::vector<std::shared_ptr<ImageFrame>> frames, Column<int32_t> numbers);

// Pastes shapes on pictures of the composer. `ends`: of the shapes; `pictures`: of those of each picture.
void attach_pasted(SubmittedJob& s, Points points, Column<int64_t> ends, Column<int64_t> pictures);

}  // namespace standpipe
