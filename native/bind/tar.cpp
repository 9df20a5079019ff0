// Members of tar archives, and the records that they are.
#include "io/tar.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bind/bind.h"
#include "io/tar_records.h"

namespace standpipe {
namespace {

// Views of what was taken last; they are there until more is taken.
template <typename Value>
nb::ndarray<nb::numpy, const Value, nb::shape<-1>> view_of(const std::vector<Value>& values,
                                                           nb::handle owner) {
    return {values.data(), {values.size()}, owner};
}

nb::bytes bytes_of(std::string_view text) { return nb::bytes(text.data(), text.size()); }

const char* name_of(TarFault fault) {
    constexpr const char* names[] = {"none",       "cant_read", "compressed", "not_tar",
                                     "bad_header", "cut",       "no_end",     "more",
                                     "zeros",      "too_long",  "sparse",     "volumes"};
    return names[static_cast<int>(fault)];
}

// (what, byte, member's name, its bytes, the system's number)
nb::object fault_of(const TarReader& reader) {
    if (reader.fault() == TarFault::none) return nb::none();
    return nb::make_tuple(name_of(reader.fault()), reader.fault_at(), bytes_of(reader.fault_name()),
                          reader.fault_size(), reader.error());
}

nb::object record_fault_of(const TarRecords& records) {
    constexpr const char* names[] = {"none", "tar",       "missing", "unexpected",
                                     "two",  "no_number", "pickle",  "objects"};
    if (records.fault() == TarRecordFault::none) return nb::none();
    if (records.fault() == TarRecordFault::tar) return fault_of(records.reader());
    return nb::make_tuple(names[static_cast<int>(records.fault())], records.fault_at(),
                          bytes_of(records.fault_name()), records.fault_field(), 0);
}

std::unique_ptr<TarRecords> make_records(const std::vector<std::pair<std::vector<std::string>, bool>>& fields,
                                         std::vector<std::string> unexpected,
                                         std::vector<std::string> pickles) {
    if (fields.empty()) throw nb::value_error("fields must have at least the image");
    std::vector<TarField> made;
    for (const auto& [extensions, number] : fields) made.push_back({extensions, number});
    return std::make_unique<TarRecords>(std::move(made), std::move(unexpected), std::move(pickles));
}

using Columns = const std::vector<int64_t>& (TarRecords::*)(size_t) const noexcept;

template <Columns columns>
auto column_of(nb::pointer_and_handle<TarRecords> records, size_t field) {
    if (field >= records.p->num_fields()) throw nb::index_error("there is no such field");
    return view_of((records.p->*columns)(field), records.h);
}

nb::tuple members_of(int file, uint64_t size, uint64_t at, size_t most) {
    TarReader reader(file, size, at);
    nb::list members;
    TarMember member;
    const auto next = [&] {
        nb::gil_scoped_release unlocked;
        return reader.next(member);
    };
    while (members.size() < most && next())
        members.append(
            nb::make_tuple(member.header, member.data, member.size, member.regular, bytes_of(member.name)));
    return nb::make_tuple(members, fault_of(reader));
}

}  // namespace

void bind_tar(nb::module_& m) {
    m.attr("TAR_BLOCK_BYTES") = kTarBlock;
    m.def("tar_members", &members_of, "file"_a, "size"_a, "at"_a, "most"_a,
          nb::sig(
              "def tar_members(file: int, size: int, at: int, most: int) -> tuple[list[tuple[int, int, int, "
              "bool, bytes]], tuple[str, int, bytes, int, int] | None]"),
          "Up to ``most`` members of a tar archive of ``size`` bytes from byte ``at`` on, as (first header, "
          "data, bytes of data, whether it is a file, name), and the fault at which they end, as that of "
          "``TarRecords``.");

    nb::class_<TarRecords>(m, "TarRecords", "Groups the members of tar shards into records.")
        .def(nb::new_(&make_records), "fields"_a, "unexpected"_a, "pickles"_a,
             "``fields``: the extensions of each field, and whether it is a number as text; the first one is "
             "the image. ``unexpected``: extensions that are an error. ``pickles``: those of pickles, which "
             "are one "
             "too, as are arrays of objects if there are any.")
        .def(
            "begin", [](TarRecords& records, int file, uint64_t size) { records.begin(file, size); },
            "file"_a, "size"_a, "Begin with another shard, of ``size`` bytes.")
        .def(
            "take",
            [](TarRecords& records, size_t most) {
                SignalCheck signals;
                bool more = false;
                {
                    nb::gil_scoped_release unlocked;
                    more = records.take(most, [&signals] { return signals.raised(); });
                }
                signals.rethrow();
                return more;
            },
            "most"_a,
            "Take up to ``most`` records in the place of those before; False at the shard's end, and for a "
            "fault. Raises what a signal's handler does.")
        .def_prop_ro(
            "headers", [](nb::pointer_and_handle<TarRecords> r) { return view_of(r.p->headers(), r.h); },
            "(n,) from an image's first header to its data, in blocks of 512 bytes.")
        .def("offsets", &column_of<&TarRecords::offsets>, "field"_a, "(n,) the first byte of a field's data.")
        .def("lengths", &column_of<&TarRecords::lengths>, "field"_a, "(n,) the bytes of a field's data.")
        .def("numbers", &column_of<&TarRecords::numbers>, "field"_a, "(n,) the numbers of a field.")
        .def_prop_ro(
            "names", [](nb::pointer_and_handle<TarRecords> r) { return view_of(r.p->names(), r.h); },
            "The names of the images, one after another.")
        .def_prop_ro(
            "name_lengths",
            [](nb::pointer_and_handle<TarRecords> r) { return view_of(r.p->name_lengths(), r.h); },
            "(n,) the bytes of each name.")
        .def_prop_ro(
            "skipped",
            [](const TarRecords& r) {
                return nb::bytes(reinterpret_cast<const char*>(r.skipped().data()), r.skipped().size());
            },
            "A name of each group without an image, each ended by a NUL byte.")
        .def_prop_ro("num_skipped", &TarRecords::num_skipped, "How many groups have no image.")
        .def(
            "duplicates",
            [](TarRecords& records) {
                nb::list pairs;
                for (const auto& [later, first] : records.duplicates())
                    pairs.append(nb::make_tuple(later, first));
                return pairs;
            },
            nb::sig("def duplicates(self) -> list[tuple[int, int]]"),
            "Of the shard that was taken: records, and earlier ones with the same key.")
        .def_prop_ro("unmarked", &TarRecords::unmarked,
                     "Whether the shard that was taken has no zeros that mark its end.")
        .def_prop_ro(
            "left_out",
            [](const TarRecords& records) {
                nb::dict counts;
                for (const auto& [extension, count] : records.left_out()) counts[bytes_of(extension)] = count;
                return counts;
            },
            nb::sig("def left_out(self) -> dict[bytes, int]"),
            "How many members of all shards so far no field takes, by extension.")
        .def_prop_ro("fault", &record_fault_of,
                     nb::sig("def fault(self) -> tuple[str, int, bytes, int, int] | None"),
                     "Why records end: (what, byte of the header, member's name, its bytes or the field's "
                     "number, the system's number).");
}

}  // namespace standpipe
