// Binds batches of JPEGs for a decoder on the GPU.
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

// A batch, and the pool that lent its buffers.
struct LentBatch {
    explicit LentBatch(std::shared_ptr<Pool> from) : pool(std::move(from)) {}
    LentBatch(LentBatch&&) = default;

    std::shared_ptr<Pool> pool;
    GpuBatch batch;
};

// Returns views of buffers that the batch holds until it is handed back or failed.
nb::list encoded_of(LentBatch& b) {
    nb::list out;
    for (const GpuRow& row : b.batch.rows) out.append(Bytes(row.bytes.data(), {row.encoded}, nb::find(b)));
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
        "records"_a, "share"_a,
        "Return for each record whether it is in a pseudorandom fraction ``share``, in [0, 1], of all.");

    nb::class_<LentBatch>(m, "GpuBatch", "Rows of one slot whose JPEGs are decoded together by a GPU.")
        .def("__len__", [](const LentBatch& b) { return b.batch.rows.size(); })
        .def_prop_ro("encoded", &encoded_of, nb::sig("def encoded(self) -> list[NDArray[numpy.uint8]]"),
                     "The file of each row, (n,) uint8. Valid until ``hand_back`` or ``fail``.")
        .def_prop_ro("frames", &frames_of, nb::sig("def frames(self) -> list[NDArray[numpy.uint8]]"),
                     "Arrays for each row's pixels, (H, W, 3) uint8. Valid until ``hand_back`` or ``fail``.")
        .def(
            "hand_back",
            [](LentBatch& b, const std::vector<bool>& decoded) {
                if (decoded.size() != b.batch.rows.size()) throw nb::value_error("one word per row");
                nb::gil_scoped_release unlocked;
                b.pool->hand_back(b.batch, decoded);
            },
            "decoded"_a, "Make rows from the frames; a row that isn't ``decoded`` is made from its file.")
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
