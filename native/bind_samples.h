// Part of the binding: what pipelines with Python code in them call.
#pragma once

#include <nanobind/nanobind.h>

namespace penstock {

void bind_samples(nanobind::module_& m);

}  // namespace penstock
