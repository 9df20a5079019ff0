// What Python needs to make rows one at a time: for pipelines in which Python code stands between the
// kernels.
#include "bind_samples.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <memory>
#include <string>
#include <tuple>

#include "mapping.h"
#include "pool.h"
#include "watch.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace penstock {
namespace {

using Encoded = nb::ndarray<const uint8_t, nb::shape<-1>, nb::c_contig, nb::device::cpu>;
using Picture = nb::ndarray<const uint8_t, nb::shape<-1, -1, 3>, nb::c_contig, nb::device::cpu>;
using Row = nb::ndarray<uint8_t, nb::shape<-1>, nb::c_contig, nb::device::cpu>;
using OwnBytes = nb::ndarray<nb::numpy, uint8_t, nb::shape<-1>>;

// A RowMaker with a side arena of its own.
struct SampleMaker {
    explicit SampleMaker(uint64_t side_bytes) : side(side_bytes), rows(side) {}

    SideArena side;
    RowMaker rows;
    uint64_t damaged = 0, truncated = 0;  // rows made of files that aren't whole
};

void check_fits(const Program& program, const Row& out) {
    if (out.shape(0) != program.format.row_bytes()) throw nb::value_error("out: not the size of a row");
}

// "" for a row that was made, "foreign" for bytes that are no JPEG, or what is wrong.
std::string verdict(Outcome outcome) {
    if (outcome.kind == Outcome::Kind::foreign) return "foreign";
    return std::move(outcome.text);
}

std::string from_encoded(SampleMaker& maker, const Program& program, Encoded data, uint64_t seed,
                         uint64_t epoch, uint64_t position, uint64_t attempt, Row out) {
    check_fits(program, out);
    nb::gil_scoped_release unlocked;
    Outcome outcome = maker.rows.from_encoded(program, {data.data(), data.shape(0)},
                                              {epoch_key(seed, epoch), position, attempt}, out.data());
    maker.damaged += outcome.damaged;
    maker.truncated += outcome.truncated;
    return verdict(std::move(outcome));
}

std::string from_pixels(SampleMaker& maker, const Program& program, Picture rgb, uint64_t seed,
                        uint64_t epoch, uint64_t position, uint64_t attempt, Row out) {
    check_fits(program, out);
    const Size size{static_cast<int>(rgb.shape(0)), static_cast<int>(rgb.shape(1))};
    nb::gil_scoped_release unlocked;
    return verdict(maker.rows.from_pixels(program, rgb.data(), size,
                                          {epoch_key(seed, epoch), position, attempt}, out.data()));
}

std::tuple<int, int, std::string> jpeg_size(Encoded data, uint64_t max_pixels, int max_scans) {
    const std::span<const uint8_t> bytes(data.data(), data.shape(0));
    if (bytes.empty()) return {0, 0, "empty file"};
    if (!JpegImage::recognises(bytes)) return {0, 0, "foreign"};
    nb::gil_scoped_release unlocked;
    JpegImage image;
    std::string text = image.open(bytes, {max_pixels, max_scans});
    const Size size = text.empty() ? image.size() : Size{};
    return {size.height, size.width, std::move(text)};
}

std::pair<OwnBytes, std::string> read(Reader& reader, const nb::bytes& path, int64_t offset, int64_t length,
                                      uint64_t max_bytes) {
    const FileRange range{{path.c_str(), path.size()}, offset, length, max_bytes};
    auto read = std::make_unique<ReadResult>();
    {
        nb::gil_scoped_release unlocked;
        // Of its own for each file: nobody else waits for its memory.
        *read = reader.read(range, *std::make_shared<BufferPool>(max_bytes));
    }
    uint8_t* data = read->buffer.data();
    const size_t size = read->size;
    std::string error = std::move(read->error);
    nb::capsule owner(read.release(), [](void* p) noexcept { delete static_cast<ReadResult*>(p); });
    return {OwnBytes(data, {size}, owner), std::move(error)};
}

OwnBytes mapped(int file, size_t bytes) {
    std::unique_ptr<Mapping> mapping;
    {
        nb::gil_scoped_release unlocked;
        mapping = std::make_unique<Mapping>(file, bytes);
    }
    uint8_t* data = mapping->data();
    nb::capsule owner(mapping.get(), [](void* p) noexcept { delete static_cast<Mapping*>(p); });
    (void)mapping.release();
    return {data, {bytes}, owner};
}

}  // namespace

void bind_samples(nb::module_& m) {
    m.def(
        "sample_key",
        [](uint64_t seed, uint64_t epoch, uint64_t position, uint64_t attempt, uint32_t op) {
            return SampleKey{epoch_key(seed, epoch), position, attempt}.op(op);
        },
        "seed"_a, "epoch"_a, "position"_a, "attempt"_a, "op"_a,
        "The 64-bit key of one op's draws for one sample.");
    m.def("jpeg_size", &jpeg_size, "data"_a, "max_pixels"_a, "max_scans"_a,
          "(height, width, '') from a header; (0, 0, 'foreign') for what is no JPEG; else (0, 0, what is "
          "wrong).");
    m.def("mapped", &mapped, "file"_a, "bytes"_a,
          "The first bytes of a file, writable, mapped until the last view of them ends.");
    m.def("end_with", &end_with, "pipe"_a, "process"_a,
          "Start a thread that ends this process once ``pipe``'s other end is closed or ``process`` has "
          "ended.");

    nb::class_<Reader>(m, "Reader", "Reads files, for any number of threads.")
        .def(nb::init<const ReadPolicy&>(), "policy"_a)
        .def("read", &read, "path"_a, "offset"_a, "length"_a, "max_bytes"_a,
             "Bytes [offset, offset + length) of a file, or to its end for length < 0, and '' or what is "
             "wrong.")
        .def("close", &Reader::close, "End pauses between tries: they fail.")
        .def_prop_ro("retries", [](const Reader& r) { return r.stats().retries; })
        .def_prop_ro("slowest_s", [](const Reader& r) { return r.stats().slowest_s; });

    nb::class_<SampleMaker>(m, "SampleMaker", "Makes image rows for one thread. Not to be shared by threads.")
        .def(nb::init<uint64_t>(), "side_bytes"_a)
        .def("from_encoded", &from_encoded, "program"_a, "data"_a, "seed"_a, "epoch"_a, "position"_a,
             "attempt"_a, "out"_a.noconvert(), "Write the row; '' or 'foreign' or what is wrong.")
        .def_ro("damaged", &SampleMaker::damaged, "Rows made of JPEGs that were decoded over damage.")
        .def_ro("truncated", &SampleMaker::truncated, "Rows made of JPEGs that end too soon.")
        .def("from_pixels", &from_pixels, "program"_a, "rgb"_a, "seed"_a, "epoch"_a, "position"_a,
             "attempt"_a, "out"_a.noconvert(), "Likewise, from pixels.");
}

}  // namespace penstock
