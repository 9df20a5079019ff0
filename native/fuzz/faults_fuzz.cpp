// Fuzzes the text of STANDPIPE_FAULTS. It must be read, or refused with a reason, and an empty item must
// change nothing.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "system/faults.h"

namespace {

bool is_read(const std::string& text) {
    try {
        standpipe::install_faults(text);
        return true;
    } catch (const std::invalid_argument& error) {
        if (*error.what() == '\0') std::abort();
        return false;
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string text(reinterpret_cast<const char*>(data), size);
    const bool read = is_read(text);
    if (is_read(text + ";") != read || is_read(" ;" + text) != read) {
        std::fprintf(stderr, "faults_fuzz: an empty item made a difference\n");
        std::abort();
    }
    return 0;
}
