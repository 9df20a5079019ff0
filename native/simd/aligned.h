// Vectors whose memory begins on a cache line, so that no full-width load or store crosses two of them.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace standpipe {

inline constexpr std::size_t kLine = 64;

constexpr std::size_t whole_lines(std::size_t bytes) noexcept { return (bytes + kLine - 1) / kLine * kLine; }

template <typename T>
struct LineAllocator {
    using value_type = T;

    LineAllocator() = default;
    template <typename U>
    LineAllocator(const LineAllocator<U>&) noexcept {}

    T* allocate(std::size_t n) {
        return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t{kLine}));
    }
    void deallocate(T* p, std::size_t) noexcept { ::operator delete(p, std::align_val_t{kLine}); }

    bool operator==(const LineAllocator&) const noexcept { return true; }
};

// Makes it `count` long without keeping what it holds, and so in no more memory than that.
template <typename Vector>
void refit(Vector& vector, std::size_t count) {
    if (vector.capacity() < count) {
        Vector().swap(vector);
        vector.reserve(count);
    }
    vector.resize(count);
}

template <typename T>
using AlignedVector = std::vector<T, LineAllocator<T>>;

}  // namespace standpipe
