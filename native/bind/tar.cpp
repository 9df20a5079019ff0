// Binds readers of tar archives: of members, and of records.
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

nb::bytes bytes_of(std::string_view text) { return nb::bytes(text.data(), text.size()); }

const char* name_of(TarFault fault) {
    constexpr const char* names[] = {"none",       "cant_read", "compressed", "not_tar",
                                     "bad_header", "cut",       "no_end",     "more",
                                     "zeros",      "too_long",  "sparse",     "volumes"};
    return names[static_cast<int>(fault)];
}

// Returns (kind of fault, byte of the header, name of the member, its bytes, errno).
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
        Released unlocked;
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
          "Return up to ``most`` members of a tar archive, and the fault that ends them: see\n"
          "``TarRecords``. Each is (byte of its first header, byte of its data, bytes of data, whether it\n"
          "is a file, name). ``size``: bytes of the archive. ``at``: byte of the first member's header.");

    nb::class_<TarRecords>(m, "TarRecords", "Groups the members of tar shards into records.")
        .def(nb::new_(&make_records), "fields"_a, "unexpected"_a, "pickles"_a,
             "``fields``: extensions of each field, and whether it is an integer as text; first the image.\n"
             "Members with ``unexpected`` extensions are errors, and so are ``pickles`` and arrays of\n"
             "objects, unless ``pickles`` is empty.")
        .def(
            "begin", [](TarRecords& records, int file, uint64_t size) { records.begin(file, size); },
            "file"_a, "size"_a, "Begin another shard, which is a file of ``size`` bytes.")
        .def("take", &taken<TarRecords>, "most"_a,
             "Take up to ``most`` records in place of those before. Returns False at the end or for a\n"
             "``fault``. Raises what a signal handler raises.")
        .def_prop_ro("headers", &viewed<TarRecords, &TarRecords::headers>,
                     "(n,) blocks of 512 bytes from an image's first header to its data.")
        .def("offsets", &column_of<&TarRecords::offsets>, "field"_a,
             "(n,) first byte of a field's data in the shard; empty for integers.")
        .def("lengths", &column_of<&TarRecords::lengths>, "field"_a,
             "(n,) bytes of a field's data, or empty.")
        .def("numbers", &column_of<&TarRecords::numbers>, "field"_a,
             "(n,) values of a field of integers; empty for other fields.")
        .def_prop_ro("names", &viewed<TarRecords, &TarRecords::names>, "Bytes of the images' names, joined.")
        .def_prop_ro("name_lengths", &viewed<TarRecords, &TarRecords::name_lengths>,
                     "(n,) bytes of each image's name in ``names``.")
        .def_prop_ro(
            "skipped",
            [](const TarRecords& r) {
                return nb::bytes(reinterpret_cast<const char*>(r.skipped().data()), r.skipped().size());
            },
            "Name of one member of each group without an image; a NUL byte ends each name.")
        .def_prop_ro("num_skipped", &TarRecords::num_skipped, "Number of groups without an image.")
        .def(
            "duplicates",
            [](TarRecords& records) {
                nb::list pairs;
                for (const auto& [later, first] : records.duplicates())
                    pairs.append(nb::make_tuple(later, first));
                return pairs;
            },
            nb::sig("def duplicates(self) -> list[tuple[int, int]]"),
            "Return (record, earlier record) for records of the finished shard that have the same key.")
        .def_prop_ro("unmarked", &TarRecords::unmarked,
                     "True if the finished shard lacks the zeros that mark the end of an archive.")
        .def_prop_ro(
            "left_out",
            [](const TarRecords& records) {
                nb::dict counts;
                for (const auto& [extension, count] : records.left_out()) counts[bytes_of(extension)] = count;
                return counts;
            },
            nb::sig("def left_out(self) -> dict[bytes, int]"),
            "Number of members that no field takes, over all shards so far, by extension.")
        .def_prop_ro(
            "fault", &record_fault_of, nb::sig("def fault(self) -> tuple[str, int, bytes, int, int] | None"),
            "The fault that ends the records, as (kind of fault, byte of the header, name of the member,\n"
            "its bytes or the number of the field, errno); None without one.");
}

}  // namespace standpipe
