// Part of the binding: points at which something is made to go wrong on purpose.
#pragma once

#include <nanobind/nanobind.h>

namespace penstock {

void bind_faults(nanobind::module_& m);

}  // namespace penstock
