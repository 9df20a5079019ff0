// Programs of few stages, for the fuzz target of rows.
#pragma once

#include <vector>

#include "image/rows.h"

namespace standpipe {

// Limits of the pictures that most programs take.
inline constexpr DecodeLimits kSmall{1 << 18, 100};

// One for each way through the code that differs; every filter occurs.
std::vector<Program> make_programs();

}  // namespace standpipe
