// One try at a sample's bytes, or at those of neighbours in one file.
#pragma once

#include <span>

#include "io/reader.h"

namespace standpipe {

// attempt: how many tries were before
Tried try_once(const FileRange& range, int attempt, Terms& terms, FileAccess& access);

// Reads parts of one file that lie one after another by one call of the system. Returns how many, from the
// first on, there were buffers for without waiting for more than the first. 0 where anything is unusual:
// then they have to be read one by one, which says what it is.
size_t try_together(std::span<const FileRange> ranges, BufferPool& buffers, std::span<ReadResult> results,
                    FileAccess& access);

}  // namespace standpipe
