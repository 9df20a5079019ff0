// Part of the binding: how files are read, and how long that takes.
#pragma once

#include <nanobind/nanobind.h>

namespace penstock {

void bind_reads(nanobind::module_& m);

}  // namespace penstock
