// Changes a JPEG in ways that a decoder should survive, as a function of random numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "system/keys.h"

namespace standpipe {

using File = std::vector<uint8_t>;

// One to eight changes of `file`: of bits and bytes anywhere, or of what its markers say. `other`: a file to
// take parts from.
void mutate(File& file, const File& other, Draws& draws);

}  // namespace standpipe
