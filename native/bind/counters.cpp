// Counters of Python threads: how long things take, for less than a microsecond.
#include <nanobind/nanobind.h>

#include <chrono>
#include <optional>

#include "bind/bind.h"
#include "system/latency.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace standpipe {
namespace {

using Clock = std::chrono::steady_clock;

// What one thread does at a place, batch by batch. All calls hold the GIL.
struct PlaceCounter {
    uint64_t rows = 0;
    Clock::duration busy{};
    Latency times;
    Clock::time_point since;

    void begin() { since = Clock::now(); }
    void end(uint64_t more) {
        const auto took = Clock::now() - since;
        busy += took;
        rows += more;
        times.add(took);
    }
};

// What the training loop does: it asks for a batch, gets it, and works on it until it asks again or leaves.
struct StepCounter {
    uint64_t steps = 0, rows = 0, ready = 0;
    Clock::duration working{}, waiting{};
    Latency step_times, wait_times;
    std::optional<Clock::time_point> got;
    Clock::time_point asked;

    void leaves() {
        if (!got) return;
        const auto took = Clock::now() - *got;
        working += took;
        step_times.add(took);
        got.reset();
    }
    void asks() {
        leaves();
        asked = Clock::now();
    }
    void gets(uint64_t more_rows, uint64_t were_ready) {
        const auto now = Clock::now();
        waiting += now - asked;
        wait_times.add(now - asked);
        ++steps;
        rows += more_rows;
        ready += were_ready;
        got = now;
    }
};

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

nb::tuple counts_of(const Latency& latency) {
    nb::list counts;
    for (const uint64_t count : latency.counts()) counts.append(count);
    return nb::tuple(counts);
}

void bind_counters(nb::module_& m) {
    const auto counts = nb::sig("def latency(self) -> tuple[int, ...]");
    m.def(
        "latency_bucket", [](uint64_t ns) { return Latency::bucket(ns); }, "nanoseconds"_a,
        "Where standpipe.stats.counters.Latency counts a duration.");

    nb::class_<Latency>(m, "Durations", "Counts durations.")
        .def(nb::init<>())
        .def(
            "add", [](Latency& l, int64_t ns) { l.add(std::chrono::nanoseconds(ns)); }, "nanoseconds"_a)
        .def_prop_ro("latency", &counts_of, counts, "As standpipe.stats.counters.Latency counts.");

    nb::class_<PlaceCounter>(m, "PlaceCounter", "Counts what one thread does at a place, batch by batch.")
        .def(nb::init<>())
        .def("begin", &PlaceCounter::begin, "It begins with a batch.")
        .def("end", &PlaceCounter::end, "rows"_a, "It is done with a batch of so many rows.")
        .def_ro("rows", &PlaceCounter::rows)
        .def_prop_ro("busy_s", [](const PlaceCounter& c) { return seconds(c.busy); })
        .def_prop_ro(
            "latency", [](const PlaceCounter& c) { return counts_of(c.times); }, counts,
            "As standpipe.stats.counters.Latency counts.");

    nb::class_<StepCounter>(m, "StepCounter", "Counts what the training loop does.")
        .def(nb::init<>())
        .def("asks", &StepCounter::asks, "It asks for a batch, and so is done with the one before.")
        .def("gets", &StepCounter::gets, "rows"_a, "ready"_a,
             "It has a batch of so many rows; ``ready`` were there when it asked.")
        .def("leaves", &StepCounter::leaves,
             "It asks for no more of this epoch: what it does until it asks again is no step.")
        .def_ro("steps", &StepCounter::steps)
        .def_ro("rows", &StepCounter::rows)
        .def_ro("ready", &StepCounter::ready)
        .def_prop_ro("step_s", [](const StepCounter& c) { return seconds(c.working); })
        .def_prop_ro("wait_s", [](const StepCounter& c) { return seconds(c.waiting); })
        .def_prop_ro(
            "step_latency", [](const StepCounter& c) { return counts_of(c.step_times); },
            nb::sig("def step_latency(self) -> tuple[int, ...]"),
            "As standpipe.stats.counters.Latency counts.")
        .def_prop_ro(
            "wait_latency", [](const StepCounter& c) { return counts_of(c.wait_times); },
            nb::sig("def wait_latency(self) -> tuple[int, ...]"), "Likewise.");
}

}  // namespace standpipe
