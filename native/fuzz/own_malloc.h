// A malloc that chooses what fresh memory holds, so that a row that depends on memory nobody wrote is found,
// that counts, so that a row that takes more than it may is, and that fails where it is told to. Only in the
// build without sanitizers, which have a malloc of their own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace standpipe {

bool has_own_malloc() noexcept;
void fill_fresh_memory(uint8_t byte) noexcept;

// Bytes allocated now, by this and every library; and the most since the last call of restart_peak().
size_t live_bytes() noexcept;
size_t peak_bytes() noexcept;
void restart_peak() noexcept;

// From now on the `number`-th allocation of all threads fails, from 1; with 0, none does. Whether one has
// since the last call.
bool fail_allocation(uint64_t number) noexcept;

}  // namespace standpipe
