// What Python needs to make rows one at a time: for pipelines in which Python code stands between the
// kernels.
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

// A RowMaker, and what the sample that it is at holds of the side arena: its frame, and its file where that
// is larger than `read_bytes`.
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

// While it lives, waits of this thread are written down on the maker's heartbeat. Without the GIL.
class HeartbeatScope {
  public:
    explicit HeartbeatScope(const SampleMaker& maker) noexcept {
        Words::mine() = reinterpret_cast<Words*>(maker.board.data());
    }
    ~HeartbeatScope() { Words::mine() = nullptr; }
    HeartbeatScope(const HeartbeatScope&) = delete;
    HeartbeatScope& operator=(const HeartbeatScope&) = delete;
};

// Gives one index after another, and writes down that the row of each begins; in C, since a Python generator
// takes longer than many a dataset.
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

// "" for a row that was made, "foreign" for bytes that Pillow decodes, or what is wrong.
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
        // Of its own for each file: nobody else waits for its memory.
        const auto buffers = std::make_shared<BufferPool>(cap, [&maker](size_t bytes) {
            const bool has_asked = maker.part.bytes() > 0;  // for an earlier try
            return bytes <= maker.read_bytes || has_asked || maker.part.add(bytes, true);
        });
        *read = reader.read(range, *buffers);
    }
    uint8_t* data = read->buffer.data();
    const size_t size = read->size;
    std::string error = std::move(read->error);
    const Stamp stamp = read->stamp;
    nb::capsule owner(read.release(), [](void* p) noexcept { delete static_cast<ReadResult*>(p); });
    return {Bytes(data, {size}, owner), std::move(error), stamp};
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
    uint8_t* data = mapping->data();
    nb::capsule owner(mapping.get(), [](void* p) noexcept { delete static_cast<Mapping*>(p); });
    (void)mapping.release();
    return {data, {bytes}, owner};
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
        "The 64-bit key of one op's draws for one sample.");
    m.def("jpeg_size", &jpeg_size, "data"_a, "max_pixels"_a, "max_scans"_a,
          "(height, width, '') from a header; (0, 0, 'foreign') for what Pillow decodes; else (0, 0, what is "
          "wrong).");
    nb::class_<ByteCount>(m, "ByteCount", "Bytes that are mapped, as ``mapped`` counts them.")
        .def(nb::new_([] { return std::make_shared<ByteCount>(0); }))
        .def_prop_ro("now", [](const ByteCount& count) { return count.load(); });
    m.def(
        "mapped", &mapped, "file"_a, "bytes"_a, "count"_a = nb::none(),
        "The first bytes of a file, writable, mapped until the last view of them ends; so long they count.");
    m.def("give_back_free_memory", &give_back_free_memory, Unlocked(),
          "Have the C library give back to the system what this thread has freed.");
    m.def("end_with", &end_with, "pipe"_a, "process"_a,
          "Start a thread that ends this process once ``pipe``'s other end is closed or ``process`` has "
          "ended.");
}

void bind_reading(nb::module_& m) {
    nb::class_<Reader>(m, "Reader", "Reads files, for any number of threads.")
        .def(nb::new_([](const ReadPolicy& policy, size_t hedged_bytes, uint64_t most_hedged) {
                 return std::make_shared<Reader>(policy, std::make_shared<BufferPool>(hedged_bytes),
                                                 most_hedged);
             }),
             "policy"_a, "hedged_bytes"_a, "most_hedged"_a,
             "``hedged_bytes``: of all reads at work that may be hedged; ``most_hedged``: of one of them.")
        .def(
            "close",
            [](Reader& r, int patience_ms) { return r.close(std::chrono::milliseconds(patience_ms)); },
            Unlocked(), "patience_ms"_a,
            "End all waits: reads fail. False when some are still inside a system call.")
        .def_prop_ro("retries", [](const Reader& r) { return r.stats().retries; })
        .def_prop_ro("hedged", [](const Reader& r) { return r.stats().hedged; })
        .def_prop_ro("opens", [](const Reader& r) { return r.stats().opens; })
        .def_prop_ro("ranges", [](const Reader& r) { return r.stats().ranges; })
        .def_prop_ro("slowest_s", [](const Reader& r) { return r.stats().slowest_s; });
}

void bind_side(nb::module_& m) {
    nb::class_<SharedSide>(m, "SharedSide", "A side arena for several processes, with an account for each.")
        .def(nb::new_([](size_t accounts) { return std::make_shared<SharedSide>(accounts); }), "accounts"_a,
             "A new one, whose cap is 0.")
        .def_static("of", &SharedSide::of, "file"_a, "The one that lies in a file, which may be closed then.")
        .def_prop_ro("descriptor", &SharedSide::file, "Of its file, to be handed to other processes.")
        .def_prop_rw("cap_bytes", &SharedSide::cap, &SharedSide::set_cap)
        .def_prop_ro("used_bytes", &SharedSide::used)
        .def_prop_ro("peak_bytes", &SharedSide::peak)
        .def("used_by", &account_bytes, "account"_a, "Of the bytes used, one account's.")
        .def("clear", &clear_account, "account"_a, "The process whose account it was is gone.");

    nb::class_<SideArena>(m, "SideArena", "Memory for whole frames, under one cap for all threads.")
        .def(nb::new_([](uint64_t cap_bytes) { return std::make_shared<SideArena>(cap_bytes); }),
             "cap_bytes"_a)
        .def(nb::new_([](std::shared_ptr<SharedSide> shared, size_t account) {
                 if (account >= shared->accounts()) throw nb::index_error("account");
                 return std::make_shared<SideArena>(std::move(shared), account);
             }),
             "shared"_a, "account"_a, "What one thread takes of an arena that processes share.")
        .def("acquire", &SideArena::acquire, Unlocked(), "bytes"_a,
             "Wait for so many, at most the cap; False when it was closed meanwhile.")
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
        "Give ``indices``, and write on a heartbeat that the row of each begins, from ``first`` on. "
        "``then``: the "
        "step after "
        "the last row.");

    nb::class_<SampleMaker>(m, "SampleMaker", "Makes image rows for one thread. Not to be shared by threads.")
        .def(nb::init<std::shared_ptr<SideArena>, uint64_t, Board>(), "side"_a, "read_bytes"_a,
             "heartbeat"_a.noconvert(), "``heartbeat``: words in which waits for memory are written down.")
        .def("read", &read, "reader"_a, "path"_a, "offset"_a, "length"_a, "file_bytes"_a = -1,
             "mtime_ns"_a = -1,
             "Bytes [offset, offset + length) of a file, or to its end for length < 0; '' or what is wrong; "
             "and the file's stamp. ``file_bytes``, ``mtime_ns``: of the file when it was indexed.")
        .def("admit", &admit, "bytes"_a,
             "Wait for the memory that a file of that size takes which is read from elsewhere. False when "
             "there will be none.")
        .def("from_encoded", &from_encoded, "program"_a, "data"_a, "seed"_a, "epoch"_a, "position"_a,
             "attempt"_a, "outs"_a.noconvert(),
             "Write the row, each head into one of ``outs``; '' or 'foreign' or what is wrong.")
        .def(
            "rows_from_encoded", &rows_from_encoded, "program"_a, "data"_a, "seed"_a, "epoch"_a,
            "positions"_a, "attempts"_a, "rows"_a, "out"_a.noconvert(),
            "Write ``rows`` of ``out`` from one image each, and the row on the heartbeat when it begins; for "
            "each '' or 'foreign' or what is wrong.")
        .def_prop_ro(
            "source_px", [](const SampleMaker& m) { return std::pair(m.source.height, m.source.width); },
            "Height and width of the last row's picture before all stages; (0, 0) if it is bad.")
        .def_ro("damaged", &SampleMaker::damaged, "Rows made of JPEGs that were decoded over damage.")
        .def_ro("truncated", &SampleMaker::truncated, "Rows made of JPEGs that end too soon.")
        .def_ro("redecoded", &SampleMaker::redecoded, "Rows that libjpeg-turbo alone decoded again.")
        .def("reserve", &reserve, "program"_a, "height"_a, "width"_a, "seed"_a, "epoch"_a, "position"_a,
             "attempt"_a, "frame_bytes"_a,
             "Wait for the memory that decoding an image of that size and making its row take; an error text "
             "when it can't be had.")
        .def("from_pixels", &from_pixels<3, Picture>, "program"_a, "rgb"_a, "seed"_a, "epoch"_a, "position"_a,
             "attempt"_a, "outs"_a.noconvert(), "Likewise, from pixels.")
        .def("from_mask", &from_pixels<1, Mask>, "program"_a, "mask"_a, "seed"_a, "epoch"_a, "position"_a,
             "attempt"_a, "outs"_a.noconvert(), "Likewise, from a mask.")
        .def(
            "release", [](SampleMaker& maker) { maker.part.release(); },
            "Give back what the sample held of the side arena, once nothing of it is in use any more.");
}

}  // namespace

void bind_samples(nb::module_& m) {
    bind_functions(m);
    bind_reading(m);
    bind_side(m);
    bind_makers(m);
}

}  // namespace standpipe
