// Binds counters of durations for Python threads. A call takes less than a microsecond.
#include <chrono>
#include <optional>

#include "bind/bind.h"
#include "system/latency.h"

namespace standpipe {
namespace {

using Clock = std::chrono::steady_clock;

// Counts what one thread does at a place, batch by batch. All calls hold the GIL.
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

// Counts the training loop's steps: it asks for a batch, gets it, and uses it until it asks again or leaves.
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

nb::typed<nb::tuple, int, nb::ellipsis> counts_of(const Latency& latency) {
    nb::list counts;
    for (const uint64_t count : latency.counts()) counts.append(count);
    return nb::tuple(counts);
}

void bind_counters(nb::module_& m) {
    m.def(
        "latency_bucket", [](uint64_t ns) { return Latency::bucket(ns); }, "nanoseconds"_a,
        "Return the bucket in which standpipe.stats.latency.Latency counts a duration.");

    nb::class_<Latency>(m, "Durations", "Counts durations.")
        .def(nb::init<>())
        .def(
            "add", [](Latency& l, int64_t ns) { l.add(std::chrono::nanoseconds(ns)); }, "nanoseconds"_a)
        .def_prop_ro("latency", &counts_of, kCounts);

    nb::class_<PlaceCounter>(m, "PlaceCounter", "Counts what one thread does at a place, batch by batch.")
        .def(nb::init<>())
        .def("begin", &PlaceCounter::begin, "Note the begin of a batch.")
        .def("end", &PlaceCounter::end, "rows"_a, "Note the end of a batch of ``rows`` rows.")
        .def_ro("rows", &PlaceCounter::rows)
        .def_prop_ro("busy_s", [](const PlaceCounter& c) { return seconds(c.busy); })
        .def_prop_ro("latency", [](const PlaceCounter& c) { return counts_of(c.times); }, kCounts);

    nb::class_<StepCounter>(m, "StepCounter", "Counts the training loop's steps, and its waits for batches.")
        .def(nb::init<>())
        .def("asks", &StepCounter::asks, "Note that the loop asks for a batch and has done the one before.")
        .def("gets", &StepCounter::gets, "rows"_a, "ready"_a,
             "Note that the loop gets a batch. ``ready``: batches that were ready when it asked.")
        .def("leaves", &StepCounter::leaves,
             "Note that the loop ends its last step of an epoch: the time until it asks again is no step.")
        .def_ro("steps", &StepCounter::steps)
        .def_ro("rows", &StepCounter::rows)
        .def_ro("ready", &StepCounter::ready)
        .def_prop_ro("step_s", [](const StepCounter& c) { return seconds(c.working); })
        .def_prop_ro("wait_s", [](const StepCounter& c) { return seconds(c.waiting); })
        .def_prop_ro(
            "step_latency", [](const StepCounter& c) { return counts_of(c.step_times); }, kCounts)
        .def_prop_ro("wait_latency", [](const StepCounter& c) { return counts_of(c.wait_times); }, kCounts);
}

}  // namespace standpipe
