// Binds functions that make rows one at a time, for pipelines with Python code between the kernels.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bind/bind.h"
#include "bind/pillow.h"
#include "image/exif.h"
#include "memory/mapping.h"
#include "pool/pool.h"
#include "system/watch.h"

namespace standpipe {
namespace {

using RowBytes = nb::ndarray<uint8_t, nb::shape<-1>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<uint8_t, nb::shape<-1, -1>, nb::c_contig, nb::device::cpu>;
using Board = nb::ndarray<int64_t, nb::shape<-1>, nb::c_contig, nb::device::cpu>;

Words* words_of(const Board& board) {
    if (board.size() * sizeof(int64_t) < sizeof(Words)) throw nb::value_error("heartbeat: too short");
    return reinterpret_cast<Words*>(board.data());
}

// A RowMaker, and what it uses. The side arena doesn't count files up to `read_bytes`.
struct BoundMaker {
    BoundMaker(std::shared_ptr<SideArena> arena, uint64_t read, Board words, nb::callable decode)
        : side(std::move(arena)),
          read_bytes(read),
          board(std::move(words)),
          pillow(std::move(decode)),
          maker(*side, words_of(board)) {}

    const std::shared_ptr<SideArena> side;
    const uint64_t read_bytes;
    const Board board;
    PillowCall pillow;
    RowMaker maker;
};

// An iterator over indices that writes the begin of each row to a heartbeat. It is in C++, because a Python
// generator takes longer than many datasets do.
struct InTurn {
    InTurn(nb::list i, int64_t f, Board b, int64_t t)
        : indices(std::move(i)), board(std::move(b)), first(f), then(t) {
        words_of(board);
    }

    nb::list indices;
    Board board;    // Words
    int64_t first;  // row of the first index
    int64_t then;   // the step after the last row
    size_t at = 0;
};

PyObject* next_in_turn(PyObject* self) noexcept {
    auto& turn = *nb::inst_ptr<InTurn>(self);
    Words& words = *words_of(turn.board);
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    std::atomic_ref(words.since_ns) = std::chrono::nanoseconds(now).count();
    if (turn.at >= turn.indices.size()) {
        std::atomic_ref(words.step) = turn.then;
        return nullptr;
    }
    std::atomic_ref(words.row) = turn.first + static_cast<int64_t>(turn.at);
    return nb::object(turn.indices[turn.at++]).release().ptr();
}

PyType_Slot in_turn_slots[] = {{Py_tp_iter, reinterpret_cast<void*>(PyObject_SelfIter)},
                               {Py_tp_iternext, reinterpret_cast<void*>(next_in_turn)},
                               {0, nullptr}};

std::vector<Output> outputs_of(const Program& program, const std::vector<RowBytes>& outs) {
    if (outs.size() != program.heads.size()) throw nb::value_error("outs: one for each head");
    std::vector<Output> outputs;
    for (size_t i = 0; i < outs.size(); ++i) {
        if (outs[i].shape(0) != program.heads[i].format.row_bytes())
            throw nb::value_error("outs: not the size of a row");
        outputs.push_back({outs[i].data(), 0});
    }
    return outputs;
}

InputData input_data(const Program& program, size_t input, const PixelArray& data) {
    if (input >= program.inputs.size()) throw nb::index_error("input");
    if (data.ndim() == 1) return Encoded{{data.data(), data.shape(0)}};
    return raw_pixels(data);
}

std::string make(BoundMaker& bound, const Program& program, size_t input, PixelArray data, uint64_t seed,
                 uint64_t epoch, uint64_t position, uint64_t attempt, const std::vector<RowBytes>& outs,
                 std::pair<int, int> first_px, const std::optional<Column<int32_t>>& windows) {
    if (windows && windows->shape(0) != 4 * program.windows)
        throw nb::value_error("windows: four numbers for each");
    const std::vector<Output> outputs = outputs_of(program, outs);
    const InputData given = input_data(program, input, data);
    const Row row{{epoch_key(seed, epoch), position, attempt, windows ? windows->data() : nullptr},
                  {outputs, 0},
                  {first_px.first, first_px.second}};
    Released unlocked;
    return bound.maker.make(program, input, given, row, &bound.pillow).text;
}

// An image's bytes, its position and attempt, and its row of the table.
using ImageOfRow = std::tuple<Column<uint8_t>, uint64_t, uint64_t, size_t>;

std::vector<std::string> make_many(BoundMaker& bound, const Program& program,
                                   const std::vector<ImageOfRow>& images, uint64_t seed, uint64_t epoch,
                                   Table out) {
    if (program.heads.size() != 1 || out.shape(1) != program.format().row_bytes())
        throw nb::value_error("out: not the size of a row");
    std::vector<RowMaker::Sample> samples;
    for (const auto& [data, position, attempt, row] : images) {
        if (row >= out.shape(0)) throw nb::index_error("a row outside of out");
        uint8_t* const place = out.data() + row * out.shape(1);
        samples.push_back({{data.data(), data.shape(0)},
                           {{epoch_key(seed, epoch), position, attempt}, place},
                           static_cast<int64_t>(row)});
    }
    Released unlocked;
    return bound.maker.make_many(program, samples, bound.pillow);
}

std::tuple<int, int, std::string> jpeg_size(Column<uint8_t> data, uint64_t max_pixels, int max_scans,
                                            bool upright) {
    const std::span<const uint8_t> bytes(data.data(), data.shape(0));
    if (bytes.empty()) return {0, 0, "empty file"};
    if (!JpegImage::recognises(bytes) || (upright && may_be_turned(bytes))) return {0, 0, "foreign"};
    Released unlocked;
    JpegImage image;
    std::string text = image.open(bytes, {max_pixels, max_scans});
    const Size size = text.empty() ? image.size() : Size{};
    return {size.height, size.width, std::move(text)};
}

std::tuple<Bytes, std::string, Stamp> read(BoundMaker& bound, Reader& reader, const nb::bytes& path,
                                           int64_t offset, int64_t length, int64_t file_bytes,
                                           int64_t mtime_ns, int64_t crc32c) {
    const FileRange range{
        {path.c_str(), path.size()}, offset, length, bound.side->cap(), file_bytes, mtime_ns, crc32c};
    auto read = unlocked(
        [&] { return std::make_unique<ReadResult>(bound.maker.read(reader, range, bound.read_bytes)); });
    std::string error = std::move(read->error);
    const Stamp stamp = read->stamp;
    return {held_bytes(std::move(read), read->buffer.data(), read->size), std::move(error), stamp};
}

uint64_t account_bytes(const SharedSide& shared, size_t account) {
    if (account >= shared.accounts()) throw nb::index_error("account");
    return shared.used_by(account);
}

void clear_account(SharedSide& shared, size_t account) {
    if (account >= shared.accounts()) throw nb::index_error("account");
    shared.clear(account);
}

Bytes mapped(int file, size_t bytes, std::shared_ptr<ByteCount> count) {
    auto mapping = unlocked([&] { return std::make_unique<Mapping>(file, bytes, std::move(count)); });
    return held_bytes(std::move(mapping), mapping->data(), bytes);
}

void bind_functions(nb::module_& m) {
    m.attr("ANY_SCANS") = kAnyScans;
    m.attr("MOST_BLOCKS") = kMostBlocks;
    m.attr("FOR_MEMORY") = Words::kForMemory;
    m.def(
        "sample_key",
        [](uint64_t seed, uint64_t epoch, uint64_t position, uint64_t attempt, uint32_t op) {
            return SampleKey{epoch_key(seed, epoch), position, attempt}.op(op);
        },
        "seed"_a, "epoch"_a, "position"_a, "attempt"_a, "op"_a,
        "Return the 64-bit key of the random numbers of one op for one sample.");
    m.def("jpeg_size", &jpeg_size, "data"_a, "max_pixels"_a, "max_scans"_a, "upright"_a,
          "Return (height, width, '') of a JPEG, in pixels, or (0, 0, 'foreign') for files that Pillow\n"
          "decodes, or (0, 0, error message).");
    nb::class_<ByteCount>(m, "ByteCount", "Counts the bytes that arrays of ``mapped`` have now.")
        .def(nb::new_([] { return std::make_shared<ByteCount>(0); }))
        .def_prop_ro("now", [](const ByteCount& count) { return count.load(); });
    m.def("mapped", &mapped, "file"_a, "bytes"_a, "count"_a = nb::none(),
          "Return the first ``bytes`` bytes of a file, writable and shared, mapped until the last view\n"
          "ends. Until then ``count`` counts them.");
    m.def("give_back_free_memory", &give_back_free_memory, Unlocked(),
          "Let the C library return memory to the system that this thread has freed.");
    m.def("end_with", &end_with, "pipe"_a, "process"_a,
          "Start a thread that ends this process when ``process`` has ended, or ``pipe``'s other end is "
          "closed.");
}

void bind_reading(nb::module_& m) {
    nb::class_<Reader>(m, "Reader", "Reads files. Thread-safe.")
        .def(nb::new_([](const ReadPolicy& policy, size_t hedged_bytes, uint64_t most_hedged) {
                 return std::make_shared<Reader>(policy, std::make_shared<BufferPool>(hedged_bytes),
                                                 most_hedged);
             }),
             "policy"_a, "hedged_bytes"_a, "most_hedged"_a,
             "``hedged_bytes``: buffers of all reads that may get a second read beside them.\n"
             "``most_hedged``: bytes of the largest sample that may get one.")
        .def(
            "close",
            [](Reader& r, int patience_ms) { return r.close(std::chrono::milliseconds(patience_ms)); },
            Unlocked(), "patience_ms"_a,
            "End all waits, so that reads fail. Returns False if some are inside a system call then.")
        .def_prop_ro("retries", [](const Reader& r) { return r.stats().retries; })
        .def_prop_ro("hedged", [](const Reader& r) { return r.stats().hedged; })
        .def_prop_ro("opens", [](const Reader& r) { return r.stats().opens; })
        .def_prop_ro("ranges", [](const Reader& r) { return r.stats().ranges; })
        .def_prop_ro("slowest_s", [](const Reader& r) { return r.stats().slowest_s; });
}

void bind_side(nb::module_& m) {
    nb::class_<SharedSide>(
        m, "SharedSide", "Counts processes' memory for whole frames under one cap, with an account for each.")
        .def(nb::new_([](size_t accounts) { return std::make_shared<SharedSide>(accounts); }), "accounts"_a,
             "``accounts``: one per process. Nothing fits until ``cap_bytes`` is set.")
        .def_static("of", &SharedSide::of, "file"_a, "Open the one in a file, which may be closed then.")
        .def_prop_ro("descriptor", &SharedSide::file,
                     "Descriptor of the file, for other processes to open; -1 if ``of`` opened it.")
        .def_prop_rw("cap_bytes", &SharedSide::cap, &SharedSide::set_cap)
        .def_prop_ro("used_bytes", &SharedSide::used)
        .def_prop_ro("peak_bytes", &SharedSide::peak)
        .def("used_by", &account_bytes, "account"_a, "Return the bytes that an account uses.")
        .def("clear", &clear_account, "account"_a, "Clear the account of a process that has ended.");

    nb::class_<SideArena>(m, "SideArena", "Counts memory for whole frames, under one cap for all threads.")
        .def(nb::new_([](uint64_t cap_bytes) { return std::make_shared<SideArena>(cap_bytes); }),
             "cap_bytes"_a)
        .def(nb::new_([](std::shared_ptr<SharedSide> shared, size_t account) {
                 if (account >= shared->accounts()) throw nb::index_error("account");
                 return std::make_shared<SideArena>(std::move(shared), account);
             }),
             "shared"_a, "account"_a, "Use one account of a ``SharedSide``, in one thread.")
        .def("acquire", &SideArena::acquire, Unlocked(), "bytes"_a,
             "Wait for ``bytes`` bytes, at most the cap. Returns False if the arena was closed.")
        .def("release", &SideArena::release, Unlocked(), "bytes"_a)
        .def_prop_ro("cap_bytes", &SideArena::cap)
        .def("close", &SideArena::close, Unlocked(), "End all waits.")
        .def_prop_ro("used_bytes", &SideArena::used)
        .def_prop_ro("peak_bytes", &SideArena::peak);
}

void bind_makers(nb::module_& m) {
    nb::class_<InTurn>(m, "_InTurn", nb::type_slots(in_turn_slots));
    m.def(
        "in_turn",
        [](nb::list indices, int64_t first, Board heartbeat, int64_t then) {
            return InTurn(std::move(indices), first, std::move(heartbeat), then);
        },
        "indices"_a, "first"_a, "heartbeat"_a.noconvert(), "then"_a,
        nb::sig("def in_turn(indices: list[int], first: int, heartbeat: typing.Any, then: int) -> "
                "collections.abc.Iterator[int]"),
        "Iterate over ``indices``, and write to a heartbeat when each row begins, from row ``first``\n"
        "on. ``then``: the step that is written after the last row.");

    nb::class_<BoundMaker>(m, "RowMaker", "Makes rows of images and masks, for one thread.")
        .def(nb::init<std::shared_ptr<SideArena>, uint64_t, Board, nb::callable>(), "side"_a, "read_bytes"_a,
             "heartbeat"_a.noconvert(), "decode"_a,
             "``read_bytes``: ``side`` counts only larger files. ``heartbeat``: (8,) int64, for waits for\n"
             "memory. ``decode(data, kind, reserve)``: has Pillow decode what native code doesn't, and\n"
             "returns its pixels, and whether the file ends too soon. It calls ``reserve(height, width,\n"
             "bytes)`` before it takes memory, which returns '' or a reason to refuse.")
        .def("read", &read, "reader"_a, "path"_a, "offset"_a, "length"_a, "file_bytes"_a = -1,
             "mtime_ns"_a = -1, "crc32c"_a = -1,
             "Read bytes [offset, offset + length) of a file; length < 0: to its end.\n"
             "Returns them, '' or an error message, and the file's stamp. ``file_bytes``, ``mtime_ns``: of\n"
             "the whole file when it was indexed; ``crc32c``: of the bytes then; -1: unknown.")
        .def(
            "admit", [](BoundMaker& b, uint64_t bytes) { return b.maker.admit(bytes, b.read_bytes); },
            Unlocked(), "bytes"_a,
            "Wait for the memory of a file that other code reads. Returns False if it doesn't fit.")
        .def("make", &make, "program"_a, "input"_a, "data"_a, "seed"_a, "epoch"_a, "position"_a, "attempt"_a,
             "outs"_a.noconvert(), "first_px"_a = std::pair(0, 0), "windows"_a.none() = nb::none(),
             "Make a row of one of the program's inputs; each head of that input writes its array of\n"
             "``outs``. ``data``: encoded (n,), or pixels, (H, W, C) or (H, W). ``first_px``: (height,\n"
             "width) of the first input in pixels, which its own must fit. ``windows``: (4 × windows,) of\n"
             "``trace``, for crops that boxes decide. Returns '' or an error message.")
        .def("make_many", &make_many, "program"_a, "images"_a, "seed"_a, "epoch"_a, "out"_a.noconvert(),
             "Make rows of ``out``, (n, bytes of a row), and write each begin to the heartbeat. ``images``:\n"
             "(encoded bytes, position, attempt, row) of each. Returns '' or an error message for each.")
        .def_prop_ro(
            "source_px",
            [](const BoundMaker& b) { return std::pair(b.maker.size().height, b.maker.size().width); },
            "(height, width) of the last input before all stages, in pixels; (0, 0) if it isn't known.")
        .def_prop_ro(
            "counts",
            [](const BoundMaker& b) {
                const RowCounts& counts = b.maker.counts();
                return std::tuple(counts.damaged, counts.truncated, counts.redecoded);
            },
            "Rows from JPEGs with damage that was decoded over, from files that end too soon, and rows that\n"
            "libjpeg-turbo decoded again.")
        .def(
            "release", [](BoundMaker& b) { b.maker.release(); },
            "Return the memory of the sample's file, once none of it is in use any more.");
}

}  // namespace

void bind_samples(nb::module_& m) {
    bind_functions(m);
    bind_reading(m);
    bind_side(m);
    bind_makers(m);
}

}  // namespace standpipe
