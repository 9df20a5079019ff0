// A malloc for fuzzing. It chooses the contents of fresh memory, to find rows that depend on memory that
// nobody wrote. It counts bytes, to find rows that take more than they may. It fails on request. Only the
// build without sanitizers has it, as sanitizers have a malloc of their own.
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

// Lets the `number`-th allocation of all threads from now on fail, from 1; with 0, none fails. Returns
// whether one has failed since the last call.
bool fail_allocation(uint64_t number) noexcept;

}  // namespace standpipe
