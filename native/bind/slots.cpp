// Slots, views and leases of them, and the bell that rings when one changes hands.
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

// A slot's bytes as an array whose owner keeps the arena mapped.
Bytes slot_view(const SlotRing& ring, int slot) {
    auto* owner = new std::shared_ptr<Arena>(ring.arena());
    nb::capsule capsule(owner, [](void* p) noexcept { delete static_cast<std::shared_ptr<Arena>*>(p); });
    return Bytes(ring.arena()->slot(static_cast<size_t>(slot)), {ring.arena()->slot_bytes()}, capsule);
}

// Likewise, but the slot goes back to the ring when the last view of the array is gone.
Bytes slot_lease(std::shared_ptr<SlotRing> ring, int slot) {
    struct Lease {
        std::shared_ptr<SlotRing> ring;
        int slot;
    };
    ring->mark_lent(slot);
    const auto arena = ring->arena();
    auto* lease = new Lease{std::move(ring), slot};
    nb::capsule capsule(lease, [](void* p) noexcept {
        auto* ended = static_cast<Lease*>(p);
        ended->ring->release(ended->slot);
        delete ended;
    });
    return Bytes(arena->slot(static_cast<size_t>(slot)), {arena->slot_bytes()}, capsule);
}

void bind_bell(nb::module_& m) {
    nb::class_<Bell>(m, "Bell", "Wakes whoever watches slots and jobs.")
        .def(nb::new_([] { return std::make_shared<Bell>(); }))
        .def("ring", &Bell::ring, Unlocked())
        .def("wait", &Bell::wait, Unlocked(), "seen"_a,
             "Wait for a ring after the call that returned ``seen``.")
        .def(
            "wait_for",
            [](Bell& b, uint64_t seen, double patience_s) {
                return b.wait_for(seen, std::chrono::duration<double>(patience_s));
            },
            Unlocked(), "seen"_a, "patience_s"_a, "Likewise; ``seen`` when nothing rang for so long.")
        .def(
            "wait_among",
            [](Bell& b, uint64_t seen, const std::vector<int>& descriptors,
               std::optional<double> patience_s) { return b.wait_among(seen, descriptors, patience_s); },
            Unlocked(), "seen"_a, "descriptors"_a, "patience_s"_a = nb::none(),
            "Likewise, or until some of ``descriptors`` can be read: these too. One thread's.");
}

void bind_ring(nb::module_& m) {
    nb::class_<SlotRing>(m, "SlotRing", "Equal slots in one sparse memfd arena, and who owns each.")
        .def(
            nb::new_([](size_t slot_bytes, size_t base, size_t most, std::shared_ptr<Bell> bell, bool keeps) {
                if (slot_bytes == 0 || base == 0 || most < base) throw nb::value_error("a ring needs slots");
                return std::make_shared<SlotRing>(std::make_shared<Arena>(slot_bytes, most), base,
                                                  std::move(bell), keeps);
            }),
            "slot_bytes"_a, "base"_a, "most"_a, "bell"_a, "keeps"_a = false,
            "With ``keeps``, slots keep their memory until the ring is retired.")
        .def("take", &SlotRing::take, Unlocked(), "grow"_a, "A slot to fill, or -1.")
        .def("mark_ready", &SlotRing::mark_ready, Unlocked(), "slot"_a)
        .def("quarantine", &SlotRing::quarantine, Unlocked(), "slot"_a,
             "Give up a slot that a stuck thread may write into yet; ``release`` it when that is over.")
        .def("release", &SlotRing::release, Unlocked(), "slot"_a)
        .def("release_ready", &SlotRing::release_ready, Unlocked(), "Release every ready slot.")
        .def("reclaim", &SlotRing::reclaim, Unlocked(),
             "Take back slots that forked children don't hold any more.")
        .def("trim", &SlotRing::trim, Unlocked(), "Give back the memory of slots beyond the base.")
        .def("retire", &SlotRing::retire, Unlocked(),
             "Give back the memory of all slots that aren't lent, and of these as they come back.")
        .def_prop_ro(
            "descriptor", [](const SlotRing& r) { return r.arena()->descriptor(); },
            "The memfd of the slots; it stays the ring's.")
        .def_prop_ro("used", &SlotRing::used, "Slots that take memory.")
        .def_prop_ro("peak", &SlotRing::peak, "Most that took memory at once.")
        .def_prop_ro(
            "stride_bytes", [](const SlotRing& r) { return r.arena()->stride_bytes(); },
            "From the start of one slot to that of the next.")
        .def("view", &slot_view, "slot"_a, "The slot's bytes, to fill.")
        .def("lend", &slot_lease, "slot"_a, "The slot's bytes; dropping the last view gives the slot back.")
        .def(
            "count", [](const SlotRing& r, const std::string& state) { return r.count(state_named(state)); },
            "state"_a)
        .def("is_taken", &SlotRing::is_taken, "slot"_a,
             "Whether a slot is being filled, ready, lent or given up.");
}

}  // namespace

void bind_slots(nb::module_& m) {
    bind_bell(m);
    bind_ring(m);
}

}  // namespace standpipe
