// Binds fault points, at which tests make something fail.
#include "system/faults.h"

#include <nanobind/stl/string.h>

#include <stdexcept>
#include <string>

#include "bind/bind.h"

namespace standpipe {
namespace {

constexpr int kRaises = -1;

int pass(const std::string& name, uint64_t key, int attempt) {
    const auto point = point_named(name);
    if (!point) throw nb::value_error(("no fault point " + name).c_str());
    Released unlocked;
    const Fault fault = faultpoint(*point, key, attempt);
    return fault.raises ? kRaises : fault.error;
}

nb::dict hits() {
    nb::dict counts;
    for (const auto& [name, count] : fault_hits()) counts[nb::str(name.data(), name.size())] = count;
    return counts;
}

}  // namespace

void bind_faults(nb::module_& m) {
    m.def(
        "install_faults", [](const std::string& text) { install_faults(text); }, "text"_a,
        "Install faults, as STANDPIPE_FAULTS describes them. Raises ``ValueError`` if ``text`` has an "
        "error.");
    m.def("faultpoint", &pass, "name"_a, "key"_a, "attempt"_a,
          "Pass a fault point. Returns the errno of an error to raise, 0 for none, or -1 for another error.");
    m.def("fault_hits", &hits, nb::sig("def fault_hits() -> dict[str, int]"),
          "Return how often this process has passed each fault point since faults were installed.");
    m.def(
        "fault_key", [](const nb::bytes& name) { return fault_key({name.c_str(), name.size()}); }, "name"_a,
        "Return the key of a file's path at fault points for files.");
}

}  // namespace standpipe
