// The error message for a failed allocation of memory.
#pragma once

namespace standpipe {

// The message. It is short enough for a string to hold it without allocating memory.
inline constexpr const char* kNoMemory = "out of memory";

}  // namespace standpipe
