// The error message for a failed allocation of memory.
#pragma once

namespace standpipe {

// So short that a string has room for it: saying it takes no memory.
inline constexpr const char* kNoMemory = "out of memory";

}  // namespace standpipe
