// Binds slots, views and leases of them, and the bell that rings when one changes its owner.
#include "memory/slots.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "bind/bind.h"

namespace standpipe {
namespace {

SlotState state_named(const std::string& name) {
    constexpr const char* names[] = {"absent", "free",  "filling",     "ready",
                                     "lent",   "spare", "quarantined", "held"};
    for (int i = 0; i < 8; ++i)
        if (name == names[i]) return static_cast<SlotState>(i);
    throw nb::value_error(("unknown slot state " + name).c_str());
}

// Returns a slot's bytes as an array that keeps the arena mapped.
Bytes slot_view(const SlotRing& ring, int slot) {
    auto arena = std::make_unique<std::shared_ptr<Arena>>(ring.arena());
    return held_bytes(std::move(arena), (*arena)->slot(static_cast<size_t>(slot)), (*arena)->slot_bytes());
}

// Returns a slot's bytes; the slot goes back to the ring when the last view of the array is gone.
Bytes slot_lease(std::shared_ptr<SlotRing> ring, int slot) {
    struct Lease {
        Lease(std::shared_ptr<SlotRing> from, int number) : ring(std::move(from)), slot(number) {
            ring->mark_lent(slot);
        }
        ~Lease() { ring->release(slot); }

        const std::shared_ptr<SlotRing> ring;
        const int slot;
    };
    const auto arena = ring->arena();
    auto lease = std::make_unique<Lease>(std::move(ring), slot);
    return held_bytes(std::move(lease), arena->slot(static_cast<size_t>(slot)), arena->slot_bytes());
}

void bind_bell(nb::module_& m) {
    nb::class_<Bell>(m, "Bell", "Wakes threads that wait for a change of slots or jobs.")
        .def(nb::new_([] { return std::make_shared<Bell>(); }))
        .def("ring", &Bell::ring, Unlocked(), "Wake all threads that wait.")
        .def("wait", &Bell::wait, Unlocked(), "seen"_a,
             "Wait for a ring after the call that returned ``seen``. Returns a new ``seen``.")
        .def(
            "wait_for",
            [](Bell& b, uint64_t seen, double patience_s) {
                return b.wait_for(seen, std::chrono::duration<double>(patience_s));
            },
            Unlocked(), "seen"_a, "patience_s"_a,
            "Wait like ``wait``, at most ``patience_s`` seconds. Returns ``seen`` if there was no ring.")
        .def(
            "wait_among",
            [](Bell& b, uint64_t seen, const std::vector<int>& descriptors,
               std::optional<double> patience_s) { return b.wait_among(seen, descriptors, patience_s); },
            Unlocked(), "seen"_a, "descriptors"_a, "patience_s"_a = nb::none(),
            "Wait like ``wait``, or until one of ``descriptors`` is readable. Returns these too, and\n"
            "``seen`` unchanged if nothing happened in ``patience_s``; None: no limit. For one thread at\n"
            "a time.");
}

void bind_ring(nb::module_& m) {
    nb::class_<SlotRing>(m, "SlotRing", "Slots of equal size in one sparse memfd, and the state of each.")
        .def(
            nb::new_([](size_t slot_bytes, size_t base, size_t most, std::shared_ptr<Bell> bell, bool keeps) {
                if (slot_bytes == 0 || base == 0 || most < base) throw nb::value_error("a ring needs slots");
                return std::make_shared<SlotRing>(std::make_shared<Arena>(slot_bytes, most), base,
                                                  std::move(bell), keeps);
            }),
            "slot_bytes"_a, "base"_a, "most"_a, "bell"_a, "keeps"_a = false,
            "``base``: slots that may exist at first. ``most``: slots that may ever exist.\n"
            "``keeps``: whether slots keep their memory until ``retire``.")
        .def("take", &SlotRing::take, Unlocked(), "grow"_a,
             "Return the number of a slot to fill, or -1 if none is free. ``grow``: allow one slot more.")
        .def("mark_ready", &SlotRing::mark_ready, Unlocked(), "slot"_a, "Mark a slot as filled.")
        .def("quarantine", &SlotRing::quarantine, Unlocked(), "slot"_a,
             "Give up a slot that a stuck thread may still write into. Call ``release`` when that thread has "
             "ended.")
        .def("release", &SlotRing::release, Unlocked(), "slot"_a, "End the use of a slot.")
        .def("release_ready", &SlotRing::release_ready, Unlocked(), "Release every slot that is ready.")
        .def("reclaim", &SlotRing::reclaim, Unlocked(), "Take back slots that no forked child holds.")
        .def("trim", &SlotRing::trim, Unlocked(), "Return the memory of slots beyond ``base`` to the system.")
        .def("retire", &SlotRing::retire, Unlocked(),
             "Return the memory of all slots to the system: of lent slots when they come back.")
        .def_prop_ro(
            "descriptor", [](const SlotRing& r) { return r.arena()->descriptor(); },
            "Descriptor of the memfd. The ring closes it.")
        .def_prop_ro("used", &SlotRing::used, "Number of slots that have memory.")
        .def_prop_ro("peak", &SlotRing::peak, "Largest value that ``used`` has had.")
        .def_prop_ro(
            "stride_bytes", [](const SlotRing& r) { return r.arena()->stride_bytes(); },
            "Bytes from the start of a slot to the start of the next.")
        .def("view", &slot_view, "slot"_a, "Return the slot's bytes, to fill.")
        .def("lend", &slot_lease, "slot"_a,
             "Return the slot's bytes, and release the slot when the last view of them is dropped.")
        .def(
            "count", [](const SlotRing& r, const std::string& state) { return r.count(state_named(state)); },
            "state"_a)
        .def("is_taken", &SlotRing::is_taken, "slot"_a, "Return whether a slot is in use or given up.");
}

}  // namespace

void bind_slots(nb::module_& m) {
    bind_bell(m);
    bind_ring(m);
}

}  // namespace standpipe
