// Binds functions that make rows one at a time, for pipelines with Python code between the kernels.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bind/bind.h"
#include "memory/mapping.h"
#include "pool/pool.h"
#include "system/watch.h"

namespace standpipe {
namespace {

using Row = nb::ndarray<uint8_t, nb::shape<-1>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<uint8_t, nb::shape<-1, -1>, nb::c_contig, nb::device::cpu>;
using Board = nb::ndarray<int64_t, nb::shape<-1>, nb::c_contig, nb::device::cpu>;

// A RowMaker, and the part of the side arena that its present sample holds: for its frame, and for its file
// if that is larger than `read_bytes`.
struct SampleMaker {
    SampleMaker(std::shared_ptr<SideArena> arena, uint64_t read, Board words)
        : side(std::move(arena)), read_bytes(read), board(std::move(words)), rows(*side), part(*side) {
        if (board.size() * sizeof(int64_t) < sizeof(Words)) throw nb::value_error("heartbeat: too short");
    }

    const std::shared_ptr<SideArena> side;
    const uint64_t read_bytes;
    const Board board;  // Words
    RowMaker rows;
    SideArena::Part part;
    Size source;                          // of the last row's picture before all stages
    uint64_t damaged = 0, truncated = 0;  // rows made of files that aren't whole
    uint64_t redecoded = 0;               // rows that libjpeg-turbo decoded again
};

// While it lives, waits of this thread are written to the maker's heartbeat. It needs no GIL.
class HeartbeatScope {
  public:
    explicit HeartbeatScope(const SampleMaker& maker) noexcept {
        Words::mine() = reinterpret_cast<Words*>(maker.board.data());
    }
    ~HeartbeatScope() { Words::mine() = nullptr; }
    HeartbeatScope(const HeartbeatScope&) = delete;
    HeartbeatScope& operator=(const HeartbeatScope&) = delete;
};

// An iterator over indices that writes the begin of each row to a heartbeat. It is in C++, because a Python
// generator takes longer than many datasets do.
struct InTurn {
    InTurn(nb::list i, int64_t f, Board b, int64_t t)
        : indices(std::move(i)), board(std::move(b)), first(f), then(t) {
        if (board.size() * sizeof(int64_t) < sizeof(Words)) throw nb::value_error("heartbeat: too short");
    }

    nb::list indices;
    Board board;    // Words
    int64_t first;  // row of the first index
    int64_t then;   // the step after the last row
    size_t at = 0;
};

PyObject* next_in_turn(PyObject* self) noexcept {
    auto& turn = *nb::inst_ptr<InTurn>(self);
    auto& words = *reinterpret_cast<Words*>(turn.board.data());
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

std::vector<Output> outputs_of(const Program& program, const std::vector<Row>& outs) {
    if (outs.size() != program.heads.size()) throw nb::value_error("outs: one for each head");
    std::vector<Output> outputs;
    for (size_t i = 0; i < outs.size(); ++i) {
        if (outs[i].shape(0) != program.heads[i].format.row_bytes())
            throw nb::value_error("outs: not the size of a row");
        outputs.push_back({outs[i].data(), 0});
    }
    return outputs;
}

// Returns "" for a row that was made, "foreign" for bytes that Pillow decodes, or an error message.
std::string verdict(Outcome outcome) {
    if (outcome.kind == Outcome::Kind::foreign) return "foreign";
    return std::move(outcome.text);
}

std::string from_encoded(SampleMaker& maker, const Program& program, Column<uint8_t> data, uint64_t seed,
                         uint64_t epoch, uint64_t position, uint64_t attempt, const std::vector<Row>& outs) {
    const std::vector<Output> outputs = outputs_of(program, outs);
    nb::gil_scoped_release unlocked;
    const HeartbeatScope at(maker);
    Outcome outcome =
        maker.rows.from_encoded(program, {data.data(), data.shape(0)},
                                {epoch_key(seed, epoch), position, attempt}, {outputs, 0}, 0, maker.part);
    maker.source = outcome.size;
    maker.damaged += outcome.damaged;
    maker.truncated += outcome.truncated;
    maker.redecoded += outcome.redecoded;
    return verdict(std::move(outcome));
}

// The keys of rows of one epoch, row by row.
struct Keys {
    uint64_t seed, epoch;
    const std::vector<uint64_t>&positions, &attempts;
};

std::vector<std::string> decoded(SampleMaker& maker, const Program& program,
                                 const std::vector<Column<uint8_t>>& data, const Keys& keys,
                                 const std::vector<size_t>& rows, const Table& out) {
    const HeartbeatScope at(maker);
    Words& words = *Words::mine();
    std::vector<std::string> verdicts;
    for (size_t i = 0; i < rows.size(); ++i) {
        const auto now = Heartbeat::Clock::now().time_since_epoch();
        std::atomic_ref(words.since_ns) = std::chrono::nanoseconds(now).count();
        std::atomic_ref(words.row) = static_cast<int64_t>(rows[i]);
        Outcome outcome =
            maker.rows.from_encoded(program, {data[i].data(), data[i].shape(0)},
                                    {epoch_key(keys.seed, keys.epoch), keys.positions[i], keys.attempts[i]},
                                    out.data() + rows[i] * out.shape(1), 0, maker.part);
        maker.part.release();
        maker.damaged += outcome.damaged;
        maker.truncated += outcome.truncated;
        maker.redecoded += outcome.redecoded;
        verdicts.push_back(verdict(std::move(outcome)));
    }
    return verdicts;
}

std::vector<std::string> rows_from_encoded(SampleMaker& maker, const Program& program,
                                           const std::vector<Column<uint8_t>>& data, uint64_t seed,
                                           uint64_t epoch, const std::vector<uint64_t>& positions,
                                           const std::vector<uint64_t>& attempts,
                                           const std::vector<size_t>& rows, Table out) {
    if (program.heads.size() != 1 || out.shape(1) != program.format().row_bytes())
        throw nb::value_error("out: not the size of a row");
    if (data.size() != rows.size() || positions.size() != rows.size() || attempts.size() != rows.size())
        throw nb::value_error("rows: one image, position and attempt for each");
    for (const size_t row : rows)
        if (row >= out.shape(0)) throw nb::index_error("rows: outside of out");
    nb::gil_scoped_release unlocked;
    return decoded(maker, program, data, {seed, epoch, positions, attempts}, rows, out);
}

std::string reserve(SampleMaker& maker, const Program& program, int height, int width, uint64_t seed,
                    uint64_t epoch, uint64_t position, uint64_t attempt, uint64_t frame_bytes) {
    nb::gil_scoped_release unlocked;
    const HeartbeatScope at(maker);
    uint64_t bytes = 0;
    std::string text = maker.rows.bytes_from_pixels(program, {height, width},
                                                    {epoch_key(seed, epoch), position, attempt}, bytes);
    bytes += frame_bytes;
    if (!text.empty()) return text;
    if (!maker.part.fits(bytes)) return over_side_cap(maker.part.bytes() + bytes, maker.side->cap());
    return maker.part.add(bytes) ? std::string() : "the loader was closed";
}

template <size_t channels, typename Array>
std::string from_pixels(SampleMaker& maker, const Program& program, Array pixels, uint64_t seed,
                        uint64_t epoch, uint64_t position, uint64_t attempt, const std::vector<Row>& outs) {
    const std::vector<Output> outputs = outputs_of(program, outs);
    if (program.format().channels() != channels)
        throw nb::value_error("program: it takes another number of channels");
    const Size size{static_cast<int>(pixels.shape(0)), static_cast<int>(pixels.shape(1))};
    nb::gil_scoped_release unlocked;
    const HeartbeatScope at(maker);
    maker.source = size;
    const SampleKey key{epoch_key(seed, epoch), position, attempt};
    if (maker.part.bytes() == 0)
        return verdict(maker.rows.from_pixels(program, pixels.data(), size, key, {outputs, 0}));
    SideArena reserved(maker.part.bytes());
    return verdict(RowMaker(reserved).from_pixels(program, pixels.data(), size, key, {outputs, 0}));
}

std::tuple<int, int, std::string> jpeg_size(Column<uint8_t> data, uint64_t max_pixels, int max_scans) {
    const std::span<const uint8_t> bytes(data.data(), data.shape(0));
    if (bytes.empty()) return {0, 0, "empty file"};
    if (!JpegImage::recognises(bytes)) return {0, 0, "foreign"};
    nb::gil_scoped_release unlocked;
    JpegImage image;
    std::string text = image.open(bytes, {max_pixels, max_scans});
    const Size size = text.empty() ? image.size() : Size{};
    return {size.height, size.width, std::move(text)};
}

std::tuple<Bytes, std::string, Stamp> read(SampleMaker& maker, Reader& reader, const nb::bytes& path,
                                           int64_t offset, int64_t length, int64_t file_bytes,
                                           int64_t mtime_ns) {
    const uint64_t cap = maker.side->cap();
    const FileRange range{{path.c_str(), path.size()}, offset, length, cap, file_bytes, mtime_ns};
    auto read = std::make_unique<ReadResult>();
    {
        nb::gil_scoped_release unlocked;
        const HeartbeatScope at(maker);
        // Each file has a pool of its own, so no other read waits for its memory.
        const auto buffers = std::make_shared<BufferPool>(cap, [&maker](size_t bytes) {
            const bool has_asked = maker.part.bytes() > 0;  // for an earlier try
            return bytes <= maker.read_bytes || has_asked || maker.part.add(bytes, true);
        });
        *read = reader.read(range, *buffers);
    }
    std::string error = std::move(read->error);
    const Stamp stamp = read->stamp;
    return {held_bytes(std::move(read), read->buffer.data(), read->size), std::move(error), stamp};
}

bool admit(SampleMaker& maker, uint64_t bytes) {
    if (bytes <= maker.read_bytes) return true;
    if (!maker.part.fits(bytes)) return false;
    nb::gil_scoped_release unlocked;
    const HeartbeatScope at(maker);
    return maker.part.add(bytes, true);
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
    std::unique_ptr<Mapping> mapping;
    {
        nb::gil_scoped_release unlocked;
        mapping = std::make_unique<Mapping>(file, bytes, std::move(count));
    }
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
    m.def("jpeg_size", &jpeg_size, "data"_a, "max_pixels"_a, "max_scans"_a,
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

    nb::class_<SampleMaker>(m, "SampleMaker", "Makes image rows, for one thread.")
        .def(nb::init<std::shared_ptr<SideArena>, uint64_t, Board>(), "side"_a, "read_bytes"_a,
             "heartbeat"_a.noconvert(),
             "``read_bytes``: ``side`` counts only larger files. ``heartbeat``: (8,) int64, for waits for "
             "memory.")
        .def("read", &read, "reader"_a, "path"_a, "offset"_a, "length"_a, "file_bytes"_a = -1,
             "mtime_ns"_a = -1,
             "Read bytes [offset, offset + length) of a file; length < 0: to its end.\n"
             "Returns them, '' or an error message, and the file's stamp. ``file_bytes``, ``mtime_ns``: of\n"
             "the whole file when it was indexed; -1: unknown.")
        .def("admit", &admit, "bytes"_a,
             "Wait for the memory of a file that other code reads. Returns False if it doesn't fit.")
        .def("from_encoded", &from_encoded, "program"_a, "data"_a, "seed"_a, "epoch"_a, "position"_a,
             "attempt"_a, "outs"_a.noconvert(),
             "Make a row from an encoded image; each head of the program writes one of ``outs``.\n"
             "Returns '', or 'foreign' if Pillow must decode the image, or an error message.")
        .def("rows_from_encoded", &rows_from_encoded, "program"_a, "data"_a, "seed"_a, "epoch"_a,
             "positions"_a, "attempts"_a, "rows"_a, "out"_a.noconvert(),
             "Make ``rows`` of ``out``, (n, bytes of a row), from one image each, and write each begin to\n"
             "the heartbeat. Returns for each row what ``from_encoded`` returns.")
        .def_prop_ro(
            "source_px", [](const SampleMaker& m) { return std::pair(m.source.height, m.source.width); },
            "(height, width) of the last row's picture before all stages, in pixels; (0, 0) if it is bad.")
        .def_ro("damaged", &SampleMaker::damaged, "Rows from JPEGs with damage that was decoded over.")
        .def_ro("truncated", &SampleMaker::truncated, "Rows from JPEGs that end too soon.")
        .def_ro("redecoded", &SampleMaker::redecoded, "Rows that libjpeg-turbo decoded again.")
        .def("reserve", &reserve, "program"_a, "height"_a, "width"_a, "seed"_a, "epoch"_a, "position"_a,
             "attempt"_a, "frame_bytes"_a,
             "Wait for the memory to decode an image of this size and to make its row. Returns '' or an\n"
             "error message. ``frame_bytes``: for decoding.")
        .def("from_pixels", &from_pixels<3, Picture>, "program"_a, "rgb"_a, "seed"_a, "epoch"_a, "position"_a,
             "attempt"_a, "outs"_a.noconvert(), "Make a row from pixels, (H, W, 3); see ``from_encoded``.")
        .def("from_mask", &from_pixels<1, Mask>, "program"_a, "mask"_a, "seed"_a, "epoch"_a, "position"_a,
             "attempt"_a, "outs"_a.noconvert(), "Make a row from a mask, (H, W); see ``from_encoded``.")
        .def(
            "release", [](SampleMaker& maker) { maker.part.release(); },
            "Return the memory reserved for the sample, once none of it is in use any more.");
}

}  // namespace

void bind_samples(nb::module_& m) {
    bind_functions(m);
    bind_reading(m);
    bind_side(m);
    bind_makers(m);
}

}  // namespace standpipe
