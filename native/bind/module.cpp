// The module, whose parts are bound in the order of the stub.
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
    // A program that an exception ends keeps the objects of its frames, such as a loader, until it exits.
    nb::set_leak_warnings(false);

    m.def("simd_paths", &simd_paths,
          "Return the names of the instruction sets that this build and processor have, narrowest first.");
    m.def("jpeg_library_version", &jpeg_library_version,
          "Return the version of libjpeg-turbo that this was compiled with, such as '2.1.5'.");
    m.def("has_entropy_decoder", &JpegEntropy::available,
          "Return whether this was built with our entropy decoder, which needs the static libjpeg-turbo.");
    bind_order(m);
    bind_index(m);
    bind_tar(m);
    bind_examples(m);
    bind_program(m);
    bind_compose(m);
    bind_moved_boxes(m);
    bind_slots(m);
    bind_reads(m);
    bind_counters(m);
    bind_pool(m);
    bind_faults(m);
    bind_polygons(m);
    bind_samples(m);
    bind_checks(m);
    bind_cache(m);
}
