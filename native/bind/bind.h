// Declarations for all files of the binding, which checks shapes, lifetimes and the GIL, and passes data on.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace standpipe {

namespace nb = nanobind;
using namespace nb::literals;

// An interpreter that ends also ends each thread that asks for its lock, by unwinding the stack. C++
// functions that throw nothing would end the process by std::terminate then. Inside the scope of this, such a
// thread waits for the end of the process instead, as in Python 3.14.
class WaitsAtEnd {
  public:
    WaitsAtEnd() = default;
    ~WaitsAtEnd() {
        while (!passed_ && std::uncaught_exceptions() == exceptions_) pause();
    }
    WaitsAtEnd(const WaitsAtEnd&) = delete;
    WaitsAtEnd& operator=(const WaitsAtEnd&) = delete;

    void passed() noexcept { passed_ = true; }

  private:
    const int exceptions_ = std::uncaught_exceptions();
    bool passed_ = false;
};

// The GIL is released while this lives.
class Released {
  public:
    Released() : thread_(PyEval_SaveThread()) {}
    ~Released() {
        WaitsAtEnd end;
        PyEval_RestoreThread(thread_);
        end.passed();
    }
    Released(const Released&) = delete;
    Released& operator=(const Released&) = delete;

  private:
    PyThreadState* const thread_;
};

// The GIL is held while this lives, in a thread of Python's that has released it.
class Locked {
  public:
    Locked() {
        WaitsAtEnd end;
        state_ = PyGILState_Ensure();
        end.passed();
    }
    ~Locked() { PyGILState_Release(state_); }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;

  private:
    PyGILState_STATE state_;
};

// Objects that native threads own as well are made by make_shared, and derive from enable_shared_from_this.
// These threads then hold no Python reference, and need no GIL to drop theirs.
using Unlocked = nb::call_guard<Released>;

template <typename Value>
using Column = nb::ndarray<const Value, nb::shape<-1>, nb::c_contig, nb::device::cpu>;
using PixelArray = nb::ndarray<const uint8_t, nb::c_contig, nb::device::cpu>;  // pictures, or masks
using Bytes = nb::ndarray<nb::numpy, uint8_t, nb::shape<-1>>;

// An array that is filled here and then becomes a NumPy array, without a copy.
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

// Returns what `work` returns, which is called without the GIL.
template <typename Work>
auto unlocked(Work&& work) {
    Released released;
    return work();
}

// Returns `count` numbers that `fill` writes, without the GIL, into a span of them.
template <typename Value, typename Fill>
typename Numbers<Value>::Array filled(size_t count, Fill&& fill) {
    Numbers<Value> numbers(count);
    unlocked([&] { fill(numbers.values()); });
    return std::move(numbers).array();
}

// Bytes in memory that `owner` holds, which ends with the last view of them.
template <typename Owner>
Bytes held_bytes(std::unique_ptr<Owner>&& owner, uint8_t* data, size_t size) {
    nb::capsule holder(owner.get(), [](void* p) noexcept { delete static_cast<Owner*>(p); });
    owner.release();
    return {data, {size}, holder};
}

// A view of numbers that an object of C++ holds. It keeps the object alive; the object may change the
// numbers.
template <typename Value>
using View = nb::ndarray<nb::numpy, const Value, nb::shape<-1>>;

template <typename Value>
View<Value> view_of(const std::vector<Value>& values, nb::handle owner) {
    return {values.data(), {values.size()}, owner};
}

// A property that is a view of the vector that a method returns.
template <typename Owner, auto method>
auto viewed(nb::pointer_and_handle<Owner> of) {
    return view_of((of.p->*method)(), of.h);
}

[[noreturn]] inline void raise_os_error(int error) {
    errno = error;
    PyErr_SetFromErrno(PyExc_OSError);
    throw nb::python_error();
}

// Checks for signals, such as Ctrl-C's, during long work without the GIL: at once, and then every 0.1 s.
class SignalCheck {
  public:
    // Returns whether a signal handler has raised. The caller must not hold the GIL.
    bool raised() {
        const auto now = std::chrono::steady_clock::now();
        if (raised_ || now < next_) return raised_;
        next_ = now + std::chrono::milliseconds(100);
        Locked locked;
        return raised_ = PyErr_CheckSignals() != 0;
    }
    // Raises the handler's exception, if there is one. The caller must hold the GIL.
    void rethrow() const {
        if (raised_) throw nb::python_error();
    }

  private:
    bool raised_ = false;
    std::chrono::steady_clock::time_point next_{};
};

// Takes up to `most` records of a reader, without the GIL. Raises what a signal handler raises.
template <typename Records>
bool taken(Records& records, size_t most) {
    SignalCheck signals;
    const bool more = unlocked([&] { return records.take(most, [&signals] { return signals.raised(); }); });
    signals.rethrow();
    return more;
}

// Returns text of a file or an error as a str; bytes that aren't UTF-8 are replaced.
inline nb::object printable(const std::string& text) {
    return nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

// Checks n paths in one blob, of which path i ends at byte ends[i].
inline void check_paths(Column<uint8_t> blob, Column<int64_t> ends) {
    int64_t before = 0;
    for (size_t i = 0; i < ends.shape(0); before = ends.data()[i++])
        if (ends.data()[i] < before || ends.data()[i] > static_cast<int64_t>(blob.shape(0)))
            throw nb::value_error("ends must rise and stay inside blob");
}

// Returns records' numbers after checking that each is below `count`.
inline std::span<const int64_t> records_of(Column<int64_t> indices, uint64_t count) {
    const std::span<const int64_t> asked(indices.data(), indices.shape(0));
    for (const int64_t index : asked)
        if (index < 0 || static_cast<uint64_t>(index) >= count)
            throw nb::index_error("a record's number is outside the index");
    return asked;
}

void bind_order(nb::module_& m);         // computed orders
void bind_index(nb::module_& m);         // lists, and index files
void bind_tar(nb::module_& m);           // tar shards
void bind_examples(nb::module_& m);      // TFRecord files
void bind_program(nb::module_& m);       // transforms of images
void bind_pixel_stages(nb::module_& m);  // those of a picture's pixels
void bind_compose(nb::module_& m);       // rows of several images
void bind_slots(nb::module_& m);         // slots, and the bell
void bind_reads(nb::module_& m);         // how files are read
void bind_pool(nb::module_& m);          // native threads and their jobs
void bind_foreign_row(nb::module_& m);   // rows that Pillow decodes
void bind_faults(nb::module_& m);        // fault points
void bind_polygons(nb::module_& m);      // shapes of objects
void bind_samples(nb::module_& m);       // rows one at a time, for Python workers
void bind_checks(nb::module_& m);        // checks of files before a run
void bind_cache(nb::module_& m);         // a cache's store
void bind_counters(nb::module_& m);      // counters of Python threads

void bind_moved_boxes(nb::module_& m);  // boxes that move with pictures

struct Program;
void bind_trace(nb::class_<Program>& program);  // what transforms do to pictures, without the pictures

class Latency;
nb::typed<nb::tuple, int, nb::ellipsis> counts_of(const Latency& latency);
constexpr const char* kCounts = "Number of durations in each bucket of standpipe.stats.latency.Latency.";

class Pool;
nb::object take_foreign(std::shared_ptr<Pool> pool);  // a ForeignRow; None when the pool is closed

}  // namespace standpipe
