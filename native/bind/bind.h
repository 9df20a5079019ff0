// What the parts of the binding share. They check shapes, lifetimes and the GIL, and let data pass.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace standpipe {

namespace nb = nanobind;
using namespace nb::literals;

// Objects that native threads own too are made by make_shared and derive from enable_shared_from_this:
// what those threads hold is then no Python reference, and dropping it needs no GIL.
using Unlocked = nb::call_guard<nb::gil_scoped_release>;

template <typename Value>
using Column = nb::ndarray<const Value, nb::shape<-1>, nb::c_contig, nb::device::cpu>;
using Mask = nb::ndarray<const uint8_t, nb::shape<-1, -1>, nb::c_contig, nb::device::cpu>;
using Picture = nb::ndarray<const uint8_t, nb::shape<-1, -1, 3>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<nb::numpy, uint8_t, nb::shape<-1>>;

// Numbers to fill and then hand to Python.
template <typename Value>
class Numbers {
  public:
    using Array = nb::ndarray<nb::numpy, Value, nb::shape<-1>>;

    explicit Numbers(size_t count) : values_(std::make_unique_for_overwrite<Value[]>(count)), count_(count) {}

    std::span<Value> values() noexcept { return {values_.get(), count_}; }
    Array array() && {
        nb::capsule owner(values_.get(), [](void* p) noexcept { delete[] static_cast<Value*>(p); });
        return {values_.release(), {count_}, owner};
    }

  private:
    std::unique_ptr<Value[]> values_;
    size_t count_;
};

using Int64s = Numbers<int64_t>;

// Looks for signals such as Ctrl-C's during long work without the GIL: at once, and then every 0.1 s.
class SignalCheck {
  public:
    // Whether a signal's handler has raised; the GIL isn't held.
    bool raised() {
        const auto now = std::chrono::steady_clock::now();
        if (raised_ || now < next_) return raised_;
        next_ = now + std::chrono::milliseconds(100);
        nb::gil_scoped_acquire locked;
        return raised_ = PyErr_CheckSignals() != 0;
    }
    // Raises what the handler did, if it has; the GIL is held.
    void rethrow() const {
        if (raised_) throw nb::python_error();
    }

  private:
    bool raised_ = false;
    std::chrono::steady_clock::time_point next_{};
};

// Text of a file or of an error, for people.
inline nb::object printable(const std::string& text) {
    return nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

// n paths in one blob, of which path i ends at byte ends[i].
inline void check_paths(Column<uint8_t> blob, Column<int64_t> ends) {
    int64_t before = 0;
    for (size_t i = 0; i < ends.shape(0); before = ends.data()[i++])
        if (ends.data()[i] < before || ends.data()[i] > static_cast<int64_t>(blob.shape(0)))
            throw nb::value_error("ends must rise and stay inside blob");
}

// Numbers of records, each below `count`.
inline std::span<const int64_t> records_of(Column<int64_t> indices, uint64_t count) {
    const std::span<const int64_t> asked(indices.data(), indices.shape(0));
    for (const int64_t index : asked)
        if (index < 0 || static_cast<uint64_t>(index) >= count)
            throw nb::index_error("a record's number lies outside the index");
    return asked;
}

void bind_order(nb::module_& m);        // computed orders
void bind_index(nb::module_& m);        // lists, and index files
void bind_tar(nb::module_& m);          // tar shards
void bind_program(nb::module_& m);      // what happens to an image
void bind_slots(nb::module_& m);        // slots, and the bell
void bind_reads(nb::module_& m);        // how files are read
void bind_pool(nb::module_& m);         // native threads and their jobs
void bind_foreign_row(nb::module_& m);  // rows that Pillow decodes
void bind_gpu(nb::module_& m);          // rows for the GPU's decoder
void bind_faults(nb::module_& m);       // points at which something goes wrong on purpose
void bind_samples(nb::module_& m);      // rows one at a time, for Python workers
void bind_checks(nb::module_& m);       // files looked at beforehand
void bind_cache(nb::module_& m);        // a cache's store
void bind_counters(nb::module_& m);     // how long things take in Python threads

class Latency;
nb::tuple counts_of(const Latency& latency);  // as standpipe.stats.counters.Latency has them

class Pool;
nb::object take_for_gpu(std::shared_ptr<Pool> pool);  // a GpuBatch; None when the pool is closed
nb::object take_foreign(std::shared_ptr<Pool> pool);  // a ForeignRow, likewise

}  // namespace standpipe
