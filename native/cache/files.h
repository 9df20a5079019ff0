// Calls for files of a cache. These may belong to anybody, be gone, or be on a disk that fails. They are
// never mapped, so every fault is the return value of a call.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>

#include "system/descriptor.h"

namespace standpipe {

// Opens a regular file of a folder, not through a link. Returns no descriptor, and errno, for an error.
Descriptor open_regular(int directory, const char* name, int flags) noexcept;

// Writes all bytes. Returns 0 or the system's error; ENOSPC if it takes no more without an error.
int write_at(int file, std::span<const uint8_t> bytes, off_t offset) noexcept;

}  // namespace standpipe
