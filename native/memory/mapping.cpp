#include "memory/mapping.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace standpipe {

Mapping::Mapping(int file, size_t bytes, std::shared_ptr<ByteCount> count)
    : bytes_(bytes), count_(std::move(count)) {
    struct stat facts{};
    if (fstat(file, &facts) != 0) throw std::system_error(errno, std::generic_category(), "fstat");
    if (facts.st_size < 0 ||
        static_cast<size_t>(facts.st_size) < bytes)  // touching what isn't there would kill
        throw std::system_error(EINVAL, std::generic_category(), "the file is too short");
    // All of it will be read at once: one call for its pages instead of a fault for each.
    void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
    if (base == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
    data_ = static_cast<uint8_t*>(base);
    if (count_) *count_ += bytes_;
}

Mapping::~Mapping() {
    munmap(data_, bytes_);
    if (count_) *count_ -= bytes_;
}

}  // namespace standpipe
