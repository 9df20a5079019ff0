// Part of the binding: looking through files before they are used.
#pragma once

#include <nanobind/nanobind.h>

namespace penstock {

void bind_checks(nanobind::module_& m);

}  // namespace penstock
