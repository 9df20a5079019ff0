// Binds rows that Python threads decode with Pillow for the native threads.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <utility>

#include "bind/bind.h"
#include "pool/pool.h"

namespace standpipe {
namespace {

// A row, and the pool that lent its buffer.
struct PendingRow {
    std::shared_ptr<Pool> pool;
    ForeignRow row;
};

}  // namespace

void bind_foreign_row(nb::module_& m) {
    nb::class_<PendingRow>(m, "ForeignRow", "A row whose bytes Pillow decodes, not the native decoder.")
        .def_prop_ro(
            "data",
            [](PendingRow& r) { return View<uint8_t>(r.row.bytes.data(), {r.row.size}, nb::find(r)); },
            "The row's bytes, without a copy. Valid until the row is finished or failed.")
        .def(
            "reserve",
            [](PendingRow& r, int height, int width, uint64_t frame_bytes) {
                nb::gil_scoped_release unlocked;
                return r.pool->reserve_for(r.row, {height, width}, frame_bytes);
            },
            "height"_a, "width"_a, "frame_bytes"_a,
            "Wait for the memory that decoding and transforming the row need. Returns '' or an error\n"
            "message. ``frame_bytes``: what Pillow needs. ``height``, ``width``: of the image, in pixels.")
        .def(
            "finish",
            [](PendingRow& r, Picture rgb, bool truncated) {
                const Size size{static_cast<int>(rgb.shape(0)), static_cast<int>(rgb.shape(1))};
                nb::gil_scoped_release unlocked;
                r.pool->finish_foreign(r.row, rgb.data(), size, truncated);
            },
            "rgb"_a, "truncated"_a)
        .def_prop_ro(
            "is_mask", [](const PendingRow& r) { return r.row.job->program->format().is_mask; },
            "True if the row is a mask: call ``finish_mask`` then, instead of ``finish``.")
        .def(
            "finish_mask",
            [](PendingRow& r, Mask mask) {
                const Size size{static_cast<int>(mask.shape(0)), static_cast<int>(mask.shape(1))};
                nb::gil_scoped_release unlocked;
                r.pool->finish_foreign(r.row, mask.data(), size, false);
            },
            "mask"_a)
        .def(
            "fail", [](PendingRow& r, std::string text) { r.pool->fail_foreign(r.row, std::move(text)); },
            "text"_a)
        .def(
            "release", [](PendingRow& r) { r.pool->release_foreign(r.row); },
            "Return reserved memory, once none of it is in use any more.");
}

nb::object take_foreign(std::shared_ptr<Pool> pool) {
    PendingRow pending{std::move(pool), {}};
    {
        nb::gil_scoped_release unlocked;
        if (!pending.pool->take_foreign(pending.row)) return nb::none();
    }
    return nb::cast(std::move(pending));
}

}  // namespace standpipe
