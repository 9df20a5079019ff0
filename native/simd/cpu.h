#pragma once

#if defined(__x86_64__)

#include <cpuid.h>

#include <cstdint>

namespace standpipe {

// Instruction sets that this x86-64 processor has and that the system saves the registers of: CPUID's bits,
// from "Intel 64 and IA-32 Architectures Software Developer's Manual", volume 2A. Not __builtin_cpu_supports:
// its answer comes from the compiler's run-time library, and zig's (0.17) says no to everything.
struct Cpu {
    bool sse42 = false, avx2 = false, avx512 = false;  // avx512: F, VL and VNNI
};

inline Cpu this_cpu() noexcept {
    Cpu cpu;
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return cpu;
    cpu.sse42 = c & bit_SSE4_2;
    if (!(c & bit_OSXSAVE)) return cpu;
    uint32_t low = 0, high = 0;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));  // XCR0: the registers that the system saves
    constexpr uint32_t kYmm = 0x06, kZmm = 0xe6;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return cpu;
    cpu.avx2 = (low & kYmm) == kYmm && (b & bit_AVX2);
    constexpr unsigned kAvx512 = bit_AVX512F | bit_AVX512VL;
    cpu.avx512 = cpu.avx2 && (low & kZmm) == kZmm && (b & kAvx512) == kAvx512 && (c & bit_AVX512VNNI);
    return cpu;
}

}  // namespace standpipe

#endif
