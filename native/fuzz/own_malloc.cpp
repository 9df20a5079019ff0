#include "fuzz/own_malloc.h"

#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace {

uint8_t filler = 0;
std::atomic<size_t> live = 0, peak = 0;
std::atomic<uint64_t> until_failure = 0;
std::atomic<bool> has_failed = false;

}  // namespace

namespace standpipe {

size_t live_bytes() noexcept { return live; }
size_t peak_bytes() noexcept { return peak; }
void restart_peak() noexcept { peak = live.load(); }
bool fail_allocation(uint64_t number) noexcept {
    until_failure = number;
    return has_failed.exchange(false);
}
void fill_fresh_memory(uint8_t byte) noexcept { filler = byte; }

}  // namespace standpipe

#if !defined(STANDPIPE_OWN_MALLOC)

bool standpipe::has_own_malloc() noexcept { return false; }

#else

bool standpipe::has_own_malloc() noexcept { return true; }

namespace {

bool fails() {
    uint64_t left = until_failure;
    while (left > 0)
        if (until_failure.compare_exchange_weak(left, left - 1)) break;
    if (left != 1) return false;
    errno = ENOMEM;
    return has_failed = true;
}

void* counted(void* fresh) {
    const size_t now = live += malloc_usable_size(fresh);
    size_t most = peak;
    while (most < now && !peak.compare_exchange_weak(most, now)) continue;
    return fresh;
}

void* filled(void* fresh, size_t bytes) {
    if (fresh) std::memset(fresh, filler, bytes);
    return counted(fresh);
}

}  // namespace

extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* old, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* old);

void* malloc(size_t bytes) { return fails() ? nullptr : filled(__libc_malloc(bytes), bytes); }
void* calloc(size_t count, size_t bytes) { return fails() ? nullptr : counted(__libc_calloc(count, bytes)); }
void* realloc(void* old, size_t bytes) {
    if (fails()) return nullptr;
    live -= malloc_usable_size(old);
    return counted(__libc_realloc(old, bytes));
}
void* memalign(size_t alignment, size_t bytes) {
    return fails() ? nullptr : filled(__libc_memalign(alignment, bytes), bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** out, size_t alignment, size_t bytes) {
    *out = memalign(alignment, bytes);
    return *out ? 0 : ENOMEM;
}
void free(void* old) {
    live -= malloc_usable_size(old);
    __libc_free(old);
}
}

#endif
