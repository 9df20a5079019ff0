// What Python needs of the points at which something is made to go wrong on purpose.
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
    nb::gil_scoped_release unlocked;
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
        "Say what shall go wrong where. Raises ValueError for a text that can't be read.");
    m.def("faultpoint", &pass, "name"_a, "key"_a, "attempt"_a,
          "Pass a point: 0, the system's number of an error to raise, or -1 for another one.");
    m.def("fault_hits", &hits, nb::sig("def fault_hits() -> dict[str, int]"),
          "Every point, and how often this process has passed it since faults were installed.");
    m.def(
        "fault_key", [](const nb::bytes& name) { return fault_key({name.c_str(), name.size()}); }, "name"_a,
        "The key of a file, by its path, at points that are passed for files.");
}

}  // namespace standpipe
