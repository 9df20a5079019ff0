// Binds the parser of file lists, and reads of packed index files.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "bind/bind.h"
#include "io/file_calls.h"
#include "io/list_lines.h"
#include "io/packed.h"
#include "io/sealed.h"

namespace standpipe {
namespace {

const char* fault_name(LineFault fault) {
    constexpr const char* names[] = {"none",       "nul",         "carriage_return",
                                     "too_long",   "empty_label", "empty_path",
                                     "other_kind", "too_large",   "image_name"};
    return names[static_cast<int>(fault)];
}

const char* kind_name(LabelKind kind) {
    constexpr const char* names[] = {"absent", "number", "name"};
    return names[static_cast<int>(kind)];
}

nb::object fault_of(const ListLines& lines) {
    if (lines.fault() == LineFault::none) return nb::none();
    return nb::make_tuple(fault_name(lines.fault()), lines.fault_line(), kind_name(lines.fault_kind()),
                          kind_name(lines.first_kind()), lines.first_line(),
                          nb::bytes(lines.fault_label().data(), lines.fault_label().size()));
}

nb::list names_of(const ListLines& lines) {
    nb::list out;
    for (const std::string& name : lines.names()) out.append(nb::bytes(name.data(), name.size()));
    return out;
}

void raise_fault(const PackedResult& result) {
    switch (result.fault) {
        case PackedFault::none: return;
        case PackedFault::cant_read: raise_os_error(result.error);
        case PackedFault::too_short: throw nb::value_error("it ends too soon");
        case PackedFault::damaged:
            throw nb::value_error(("the bytes from " + std::to_string(result.index) +
                                   " on aren't what was written: the disk or a program changed them")
                                      .c_str());
        case PackedFault::bad_place:
            throw nb::value_error(
                ("the place of record " + std::to_string(result.index) + " is outside it").c_str());
        case PackedFault::bad_path:
            throw nb::value_error(
                ("where record " + std::to_string(result.index) + " should be is no path").c_str());
        case PackedFault::leads_out:
            throw nb::value_error(
                ("the path of record " + std::to_string(result.index) + " leads out of its folder").c_str());
    }
}

// (descriptor, first byte, bytes of data, key of its checksums)
using SectionTuple = std::tuple<int, uint64_t, uint64_t, std::optional<uint64_t>>;

PackedSection section_of(const SectionTuple& parts) { return std::make_from_tuple<PackedSection>(parts); }

// The texts of a packed list. The arrays keep their memory mapped.
class Texts {
  public:
    Texts(Column<uint8_t> data, Column<uint8_t> ends, bool decodes)
        : data_(std::move(data)), ends_(std::move(ends)), decodes_(decodes) {}

    // Throws std::out_of_range if the list has no such text.
    nb::object item(size_t number) const {
        if (number >= ends_.shape(0) / sizeof(int64_t)) throw std::out_of_range("list index out of range");
        const int64_t begin = number == 0 ? 0 : end(number - 1), stop = end(number);
        if (begin < 0 || begin > stop || stop > static_cast<int64_t>(data_.shape(0)))
            throw nb::value_error("the packed list is damaged");
        const auto* text = reinterpret_cast<const char*>(data_.data()) + begin;
        return nb::steal(decodes_ ? PyUnicode_DecodeUTF8(text, stop - begin, "surrogatepass")
                                  : PyBytes_FromStringAndSize(text, stop - begin));
    }

  private:
    int64_t end(size_t number) const {  // of an array that may be unaligned
        int64_t value;
        std::memcpy(&value, ends_.data() + number * sizeof value, sizeof value);
        return value;
    }

    Column<uint8_t> data_, ends_;
    bool decodes_;
};

void bind_lists(nb::module_& m) {
    m.attr("LONGEST_LINE_BYTES") = kLongestLine;
    m.attr("LENGTH_SHIFT") = kOffsetBits;
    nb::class_<Texts>(m, "Texts", "Reads texts of a packed list in mapped memory.")
        .def(nb::init<Column<uint8_t>, Column<uint8_t>, bool>(), "data"_a, "ends"_a, "decodes"_a,
             "``ends``: where each text ends in ``data``, int64 each, as bytes.\n"
             "``decodes``: True for texts of UTF-8 that are returned as str, False for bytes.")
        .def("item", &Texts::item, "number"_a, nb::sig("def item(self, number: int) -> typing.Any"),
             "Return a text. Raises ``IndexError`` for a number that the list hasn't.");

    nb::class_<ListLines>(m, "ListLines", "Splits the lines of a file list into paths and labels, by chunk.")
        .def(nb::init<bool, std::vector<std::string>>(), "labels"_a, "image_suffixes"_a,
             "``labels``: whether lines may have labels. ``image_suffixes``: in lower case.\n"
             "A label that ends with one of them is a fault, because it looks like a file name.")
        .def(
            "take",
            [](ListLines& lines, Column<uint8_t> text, uint64_t offset, bool last) {
                Released unlocked;
                return lines.take({text.data(), text.shape(0)}, offset, last);
            },
            "text"_a, "offset"_a, "last"_a,
            "Take the whole lines of ``text`` in place of those before; return how many bytes they are.\n"
            "``offset``: of ``text`` in the list. ``last``: whether the list ends with it.")
        .def_prop_ro(
            "places", &viewed<ListLines, &ListLines::places>,
            "(n,) where the chunk's paths are in the list: offset in bytes, and length from bit 48 on.")
        .def_prop_ro(
            "labels", &viewed<ListLines, &ListLines::labels>,
            "(n,) labels of the chunk's records: integers, or positions in ``names``; empty without labels.")
        .def_prop_ro("paths", &viewed<ListLines, &ListLines::paths>, "Bytes of the chunk's paths, joined.")
        .def_prop_ro(
            "line_that_leads_out", &ListLines::line_that_leads_out,
            "Number, from 1, of the first line whose path is absolute or has a '..'; 0 while there is none.")
        .def_prop_ro("has_labels", &ListLines::has_labels)
        .def_prop_ro("has_names", &ListLines::has_names)
        .def_prop_ro("names", &names_of, nb::sig("def names(self) -> list[bytes]"),
                     "Class names, in the order in which the list first has them.")
        .def_prop_ro(
            "fault", &fault_of, nb::sig("def fault(self) -> tuple[str, int, str, str, int, bytes] | None"),
            "The line that can't be read, as (kind of fault, line, kind of its label, kind of the first\n"
            "record's label, line of the first record, label); None while there is none.");
}

void bind_seals(nb::module_& m) {
    m.def(
        "sealed",
        [](Column<uint8_t> data, uint64_t key, uint64_t first) {
            const std::span bytes(data.data(), data.shape(0));
            return filled<uint8_t>(sealed_size(bytes.size()),
                                   [&](auto out) { seal(bytes, key, first, out); });
        },
        "data"_a, "key"_a, "first"_a,
        "Return blocks that hold ``data``, each with its checksum, uint8. ``first``: number of the first "
        "block.");
    m.attr("BLOCK_DATA_BYTES") = kDataBytes;
    m.def(
        "sealed_size", [](uint64_t size) { return sealed_size(size); }, "size"_a,
        "Return how many bytes of a file hold ``size`` bytes of data in sealed blocks.");
}

// Waits until every later change gives an open file another time stamp, but at most `kMost_ns`.
void settle(int file) {
    constexpr int64_t kMost_ns = kSecond_ns;
    struct stat info;
    for (int64_t left_ns = 0, waited_ns = 0; waited_ns < kMost_ns; waited_ns += left_ns) {
        if (fstat(file, &info) != 0 || (left_ns = left_to_settle_ns(file, info)) == 0) return;
        std::this_thread::sleep_for(std::chrono::nanoseconds(left_ns));
    }
}

void bind_packed(nb::module_& m) {
    m.def("settle", &settle, "file"_a, Unlocked(),
          "Wait until every later change of an open file gives it another time stamp. This takes some\n"
          "milliseconds after the file's last change, and at most a second.");
    m.def(
        "packed_part",
        [](const SectionTuple& section, uint64_t begin, uint64_t end) {
            const PackedSection of = section_of(section);
            if (begin > end || end > of.size) throw nb::index_error("a part is outside its section");
            PackedResult result;
            const auto part =
                filled<uint8_t>(end - begin, [&](auto out) { result = read_part(of, begin, out); });
            raise_fault(result);
            return part;
        },
        "section"_a, "begin"_a, "end"_a,
        "Return the bytes [begin, end) of a section's data. ``section``: see ``packed_rows``.");
    m.def(
        "packed_rows",
        [](const SectionTuple& section, uint64_t row_bytes, Column<int64_t> indices, uint64_t stride) {
            const PackedSection of = section_of(section);
            if (row_bytes == 0) throw nb::value_error("a row has at least one byte");
            if (stride == 0) stride = row_bytes;
            const auto asked =
                records_of(indices, of.size < row_bytes ? 0 : (of.size - row_bytes) / stride + 1);
            PackedResult result;
            const auto rows = filled<uint8_t>(asked.size() * row_bytes, [&](auto out) {
                result = read_rows({of, row_bytes, stride}, asked, out.data());
            });
            raise_fault(result);
            return rows;
        },
        "section"_a, "row_bytes"_a, "indices"_a, "stride"_a = 0,
        "Return rows of a column, one after another. ``stride``: bytes from one row to the next; 0:\n"
        "``row_bytes``; 1: indices are the rows' first bytes. ``section``: (descriptor, first byte, bytes\n"
        "of data, key of its checksums or None).");
}

void bind_paths(nb::module_& m) {
    m.def(
        "packed_paths",
        [](const SectionTuple& places, const SectionTuple& text,
           std::tuple<nb::bytes, nb::bytes, nb::bytes> around, nb::bytes base, bool stays,
           Column<int64_t> indices) {
            const auto view = [](const nb::bytes& b) { return std::string_view(b.c_str(), b.size()); };
            const PackedSection from = section_of(places);
            const auto asked = records_of(indices, from.size / sizeof(uint64_t));
            const PackedText of{section_of(text), view(std::get<0>(around)), view(std::get<1>(around)),
                                view(std::get<2>(around)), stays};
            auto blob = std::make_unique<std::vector<uint8_t>>();
            PackedResult result;
            const auto ends = filled<int64_t>(asked.size(), [&](auto out) {
                result =
                    read_paths({from, sizeof(uint64_t), sizeof(uint64_t)}, of, view(base), asked, *blob, out);
            });
            raise_fault(result);
            return std::make_tuple(held_bytes(std::move(blob), blob->data(), blob->size()), ends);
        },
        "places"_a, "text"_a, "around"_a, "base"_a, "stays"_a, "indices"_a,
        "Return the paths of records as (blob, ends): path i ends at byte ends[i] of blob.\n"
        "``places``, ``text``: sections; see ``packed_rows``. ``around``: bytes that stand before a\n"
        "path, after it, and never in it. ``base``: goes before relative paths. ``stays``: whether a\n"
        "path that leads out of ``base`` is an error.");
}

}  // namespace

void bind_index(nb::module_& m) {
    bind_lists(m);
    bind_seals(m);
    bind_packed(m);
    bind_paths(m);
}

}  // namespace standpipe
