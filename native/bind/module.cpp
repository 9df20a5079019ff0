// The module: who binds what, in the order of the stubs.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "bind/bind.h"
#include "image/jpeg.h"
#include "image/jpeg_entropy.h"
#include "simd/simd.h"

namespace standpipe {
namespace {

std::vector<std::string> simd_paths() {
    std::vector<std::string> names;
    for (const char* name : {"scalar", "avx2", "avx512", "neon"})
        if (kernels_named(name)) names.emplace_back(name);
    return names;
}

}  // namespace
}  // namespace standpipe

NB_MODULE(_native, m) {
    using namespace standpipe;
    // A program that ends by an exception keeps what its frames hold, a loader too, to the very end.
    nb::set_leak_warnings(false);

    m.def("simd_paths", &simd_paths, "Instruction sets this machine runs, narrowest first.");
    m.def("jpeg_library_version", &jpeg_library_version, "Version of the libjpeg-turbo in use.");
    m.def("has_entropy_decoder", &JpegEntropy::available,
          "Whether our entropy decoder was built in: it needs headers that only the static library has.");
    bind_order(m);
    bind_index(m);
    bind_tar(m);
    bind_program(m);
    bind_slots(m);
    bind_reads(m);
    bind_gpu(m);
    bind_counters(m);
    bind_pool(m);
    bind_faults(m);
    bind_samples(m);
    bind_checks(m);
    bind_cache(m);
}
