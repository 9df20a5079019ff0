// Binds rows that Python threads decode with Pillow for the native threads.
#include <nanobind/stl/shared_ptr.h>

#include <memory>
#include <utility>

#include "bind/bind.h"
#include "bind/pillow.h"
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
        .def(
            "make",
            [](PendingRow& r, nb::callable decode) {
                PillowCall pillow(std::move(decode));
                Released unlocked;
                r.pool->make_foreign(r.row, pillow);
            },
            "decode"_a, "Make the row. ``decode``: as for ``RowMaker``.");
}

nb::object take_foreign(std::shared_ptr<Pool> pool) {
    PendingRow pending{std::move(pool), {}};
    if (!unlocked([&] { return pending.pool->take_foreign(pending.row); })) return nb::none();
    return nb::cast(std::move(pending));
}

}  // namespace standpipe
