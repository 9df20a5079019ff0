// Checks that end the process, and files of any bytes, for all fuzz targets.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>

#include "system/descriptor.h"
#include "system/keys.h"

namespace standpipe {

using Bytes = std::span<const uint8_t>;

[[noreturn]] inline void fail(const std::string& what) {
    std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, what.c_str());
    std::abort();
}

inline void check(bool right, const char* what) {
    if (!right) fail(what);
}

// A key of random numbers that depends on all bytes.
inline uint64_t digest_of(Bytes bytes, uint64_t digest = 0) noexcept {
    for (; !bytes.empty(); bytes = bytes.subspan(std::min<size_t>(bytes.size(), 8))) {
        uint64_t word = bytes.size();
        std::memcpy(&word, bytes.data(), std::min<size_t>(bytes.size(), 8));
        digest = mix(digest, word);
    }
    return digest;
}

// A file in memory that holds some bytes and goes with this object.
class MemoryFile {
  public:
    explicit MemoryFile(Bytes bytes) : file_(memfd_create("fuzz", MFD_CLOEXEC)) {
        check(file_ && write(get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
              "no file");
    }
    int get() const noexcept { return file_.get(); }

  private:
    const Descriptor file_;
};

}  // namespace standpipe
