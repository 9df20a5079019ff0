// Binds the reader of TFRecord files.
#include "io/examples.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "bind/bind.h"

namespace standpipe {
namespace {

const char* name_of(FeatureKind kind) {
    constexpr const char* names[] = {"nothing", "bytes", "floats", "integers"};
    return names[static_cast<int>(kind)];
}

nb::object fault_of(const ExampleRecords& records) {
    constexpr const char* names[] = {"none",       "cant_read", "compressed", "not_records",
                                     "bad_length", "bad_data",  "cut",        "too_long",
                                     "no_example", "missing",   "kind",       "count"};
    if (records.fault() == ExampleFault::none) return nb::none();
    return nb::make_tuple(names[static_cast<int>(records.fault())], records.record(), records.at(),
                          records.fault_field(), records.error());
}

nb::list features_of(const ExampleRecords& records) {
    nb::list found;
    for (const Feature& feature : records.features())
        found.append(
            nb::make_tuple(nb::bytes(feature.name.data(), feature.name.size()), name_of(feature.kind)));
    return found;
}

template <auto column>
auto column_of(nb::pointer_and_handle<ExampleRecords> records, size_t field) {
    if (field >= records.p->num_fields()) throw nb::index_error("there is no such feature");
    return view_of((records.p->*column)(field), records.h);
}

}  // namespace

void bind_examples(nb::module_& m) {
    using Records = ExampleRecords;
    nb::class_<Records>(m, "ExampleRecords", "Reads the messages tf.train.Example of TFRecord files.")
        .def(nb::init<std::vector<std::string>>(), "names"_a, "``names``: of the features that are taken.")
        .def("begin", &Records::begin, "file"_a, "size"_a, "Begin another file, of ``size`` bytes.")
        .def("take", &taken<ExampleRecords>, "most"_a,
             "Take up to ``most`` records in place of those before. Returns False at the end or for a\n"
             "``fault``. Raises what a signal handler raises.")
        .def_prop_ro("sums", &viewed<Records, &Records::sums>, "(n,) masked CRC-32C of each record.")
        .def(
            "kind",
            [](const Records& r, size_t field) {
                if (field >= r.num_fields()) throw nb::index_error("there is no such feature");
                return nb::make_tuple(name_of(r.kind(field)), r.count(field));
            },
            "field"_a, nb::sig("def kind(self, field: int) -> tuple[str, int]"),
            "Return what a feature is, 'bytes', 'floats' or 'integers', and its number of values.")
        .def("offsets", &column_of<&Records::offsets>, "field"_a, "(n,) first byte of a value in the file.")
        .def("lengths", &column_of<&Records::lengths>, "field"_a, "(n,) bytes of a value.")
        .def("ints", &column_of<&Records::ints>, "field"_a, "(n · values,) integers, or empty.")
        .def("floats", &column_of<&Records::floats>, "field"_a, "(n · values,) floats, or empty.")
        .def_prop_ro("features", &features_of, nb::sig("def features(self) -> list[tuple[bytes, str]]"),
                     "Name and kind of each feature of the record that was read last.")
        .def_prop_ro("fault", &fault_of, nb::sig("def fault(self) -> tuple[str, int, int, int, int] | None"),
                     "The fault that ends the records, as (kind of fault, number of the record in its file,\n"
                     "its first byte, number of the feature, errno); None without one.");
}

}  // namespace standpipe
