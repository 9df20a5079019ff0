// Files of a cache, which may be anybody's, gone, or on a disk that fails: nothing of them is mapped, so all
// that can go wrong is the answer of a call.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>

#include "system/descriptor.h"

namespace standpipe {

// A regular file of that folder, through no link; otherwise none, and errno.
Descriptor open_regular(int directory, const char* name, int flags) noexcept;

// How many bytes there were, up to all of `out`; -1, and errno, for an error.
ssize_t read_at(int file, std::span<uint8_t> out, off_t offset) noexcept;

// All of them. 0, or the system's error; ENOSPC when it takes no more without saying why.
int write_at(int file, std::span<const uint8_t> bytes, off_t offset) noexcept;

}  // namespace standpipe
