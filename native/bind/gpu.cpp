// Rows for the GPU's decoder.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <utility>
#include <vector>

#include "bind/bind.h"
#include "pool/pool.h"
#include "system/keys.h"

namespace standpipe {
namespace {

// Keeps the pool that lent the rows' buffers.
struct LentBatch {
    explicit LentBatch(std::shared_ptr<Pool> from) : pool(std::move(from)) {}
    LentBatch(LentBatch&&) = default;

    std::shared_ptr<Pool> pool;
    GpuBatch batch;
};

// Views of what the batch holds: there until it is handed back or failed.
nb::list encoded_of(LentBatch& b) {
    nb::list out;
    for (const GpuRow& row : b.batch.rows)
        out.append(
            nb::ndarray<nb::numpy, uint8_t, nb::shape<-1>>(row.bytes.data(), {row.encoded}, nb::find(b)));
    return out;
}

nb::list frames_of(LentBatch& b) {
    nb::list out;
    for (size_t i = 0; i < b.batch.rows.size(); ++i) {
        const Size size = b.batch.rows[i].size;
        out.append(nb::ndarray<nb::numpy, uint8_t, nb::shape<-1, -1, 3>>(
            b.batch.frames.get() + b.batch.offset[i],
            {static_cast<size_t>(size.height), static_cast<size_t>(size.width), 3}, nb::find(b)));
    }
    return out;
}

}  // namespace

void bind_gpu(nb::module_& m) {
    m.def(
        "in_share",
        [](Column<int64_t> records, double share) {
            std::vector<bool> out(records.shape(0));
            for (size_t i = 0; i < out.size(); ++i)
                out[i] = in_share(static_cast<uint64_t>(records.data()[i]), share);
            return out;
        },
        "records"_a, "share"_a, "Which records are among a share of all of them.");

    nb::class_<LentBatch>(m, "GpuBatch", "Rows of one slot whose JPEGs are decoded together.")
        .def("__len__", [](const LentBatch& b) { return b.batch.rows.size(); })
        .def_prop_ro("encoded", &encoded_of, nb::sig("def encoded(self) -> list[NDArray[numpy.uint8]]"),
                     "Each row's file, (n,) uint8, no copy: there until the batch is handed back or failed.")
        .def_prop_ro("frames", &frames_of, nb::sig("def frames(self) -> list[NDArray[numpy.uint8]]"),
                     "Where each row's pixels go, (H, W, 3) uint8, for as long.")
        .def(
            "hand_back",
            [](LentBatch& b, const std::vector<bool>& decoded) {
                if (decoded.size() != b.batch.rows.size()) throw nb::value_error("one word per row");
                nb::gil_scoped_release unlocked;
                b.pool->hand_back(b.batch, decoded);
            },
            "decoded"_a, "Make rows of the frames, and from the file where a row isn't ``decoded``.")
        .def(
            "fail", [](LentBatch& b, const std::string& text) { b.pool->fail(b.batch, text); }, Unlocked(),
            "text"_a);
}

nb::object take_for_gpu(std::shared_ptr<Pool> pool) {
    LentBatch lent(std::move(pool));
    bool taken = false;
    {
        nb::gil_scoped_release unlocked;
        taken = lent.pool->take_for_gpu(lent.batch);
    }
    return taken ? nb::cast(std::move(lent)) : nb::none();
}

}  // namespace standpipe
