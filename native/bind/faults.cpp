// Binds fault points, at which tests make something fail.
#include "system/faults.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "bind/bind.h"

namespace standpipe {
namespace {

constexpr int kRaises = -1;

// The members of a FaultRule.
using Rule =
    std::tuple<int, int, int, double, double, uint64_t, std::optional<uint64_t>, int, uint64_t, std::string>;

Point point_of(int number) {
    if (number < 0 || static_cast<size_t>(number) >= kMostPoints) throw nb::value_error("no such point");
    return static_cast<Point>(number);
}

void install(const std::vector<Rule>& rules, const nb::bytes& log) {
    std::vector<FaultRule> made;
    for (const auto& [point, action, error, delay_s, share, hit, key, tries, salt, name] : rules)
        made.push_back({point_of(point), static_cast<FaultRule::Action>(action), error, delay_s, share, hit,
                        key, tries, salt, name});
    install_faults(std::move(made), {log.c_str(), log.size()});
}

int pass(int point, uint64_t key, int attempt) {
    const Point there = point_of(point);
    Released unlocked;
    const Fault fault = faultpoint(there, key, attempt);
    return fault.raises ? kRaises : fault.error;
}

}  // namespace

void bind_faults(nb::module_& m) {
    m.def("install_faults", &install, "rules"_a, "log"_a,
          "Install faults, as standpipe.system.faults has read them. ``log``: path of a file; empty: none.");
    m.def("faultpoint", &pass, "point"_a, "key"_a, "attempt"_a,
          "Pass a fault point. Returns the errno of an error to raise, 0 for none, or -1 for another error.");
    m.def("fault_hits", &fault_hits,
          "Return how often this process has passed each fault point since faults were installed.");
    m.def(
        "fault_key", [](const nb::bytes& name) { return fault_key({name.c_str(), name.size()}); }, "name"_a,
        "Return the key of a file's path at fault points for files.");
}

}  // namespace standpipe
