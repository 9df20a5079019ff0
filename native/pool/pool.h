// The threads of a loader. Some decode; some read files ahead of those.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/store.h"
#include "image/row_maker.h"
#include "io/reader.h"
#include "memory/heartbeat.h"
#include "memory/slots.h"
#include "system/latency.h"

namespace standpipe {

// The files of an input of a job's rows. The arrays are borrowed: the caller that submits the job keeps them
// alive until it is done.
struct FileInput {
    const uint8_t* blob;    // paths, one after another
    const int64_t* ends;    // (rows,) where each path ends
    const int64_t* offset;  // (rows,) first byte
    const int64_t* length;  // (rows,) bytes, or below 0: see `is_part`
    // (rows,) size and time of modification of the whole file when it was indexed, where they are known.
    std::optional<const int64_t*> file_bytes, mtime_ns;
    std::optional<const int64_t*> crc32c;  // (rows,) of the bytes, where it is known

    std::string_view path(int row) const noexcept {
        const int64_t begin = row == 0 ? 0 : ends[row - 1];
        return {reinterpret_cast<const char*>(blob) + begin, static_cast<size_t>(ends[row] - begin)};
    }
    // Returns whether the row is a part of a file; else it is the file from `offset` to its end.
    bool is_part(int row) const noexcept { return length[row] >= 0; }
    // Returns the byte behind a part.
    int64_t stop(int row) const noexcept { return offset[row] + length[row]; }
};

// The record of each row in one of the arrays that together have all rows.
class RecordsOfRows {
  public:
    explicit RecordsOfRows(const int64_t* numbers) : numbers_(numbers) {}
    // Returns the number of a row's record; nothing if another array has the row.
    std::optional<size_t> of(int row) const noexcept {
        if (numbers_[row] < 0) return std::nullopt;
        return static_cast<size_t>(numbers_[row]);
    }

  private:
    const int64_t* numbers_;
};

struct PixelInput {
    const uint8_t* base;  // (records, height, width, channels)
    RecordsOfRows records;
    Size size;
    int channels;

    RawPixels of(size_t record) const noexcept {
        const size_t bytes = static_cast<size_t>(channels) * static_cast<size_t>(size.height) *
                             static_cast<size_t>(size.width);
        return {base + record * bytes, size, channels};
    }
};

// A field that is copied without changes from records of `base` to rows of `out`.
struct CopyInput {
    const uint8_t* base;
    RecordsOfRows records;
    size_t row_bytes;
    uint8_t* out;
};

// The cache of a job's rows, and how rows are stored in it.
struct JobCache {
    std::shared_ptr<CacheStore> store;      // null: no cache is available; rows are still made in two parts
    const int64_t* records = nullptr;       // (rows,)
    std::shared_ptr<const Program> before;  // makes what is stored, bytes, pixels first; null: files are
    bool checks = true;                     // whether a row is compared with its file before it is used

    Size size() const noexcept { return {before->format().height, before->format().width}; }
    RawPixels kept(const uint8_t* pixels) const noexcept {
        return {pixels, size(), before->format().channels};
    }
};

// The files of one of the program's inputs, or else the arrays that have it.
struct JobInput {
    std::optional<FileInput> files;
    std::vector<PixelInput> pixels;
};

// One input of a row. A thread takes one at a time: a row that held one file's buffer while it waited for
// another's could wait for ever.
struct Turn {
    int row = 0, input = 0;
};

struct Failure {
    int row, input;
    Outcome outcome;
};

// The rows of one slot.
struct Job {
    std::shared_ptr<const Program> program;    // null: nothing but copies
    std::optional<JobCache> cache;             // with `before`: `program` goes on from what that made
    std::vector<JobInput> inputs;              // of `program`
    std::vector<CopyInput> copies;             // which each row's first input makes
    std::shared_ptr<const Composer> composer;  // rows are made of `frames`; null: frames are made, or none
    std::vector<std::shared_ptr<ImageFrame>> frames;
    std::vector<int32_t> frames_of_rows;  // numbers in `frames`, as many for each row; -1: it isn't used
    PastedShapes pasted;                  // on pictures of the composer
    int rows = 0;
    uint64_t epoch_key = 0;
    std::vector<uint64_t> positions;  // of the rows in the epoch's global order
    std::optional<std::vector<uint64_t>>
        attempts;  // of rows that take bad samples' places; else all are first ones
    std::optional<std::vector<int>> slot_rows;  // of the rows; else those from the slot's first one on
    std::vector<int32_t> windows;               // of the crops that boxes decide: as many for each row
    std::vector<Size> annotated;   // of each row's first input, as its annotations say; empty: they say none
    std::vector<Size> sizes;       // of each input of each row, once it is known; empty with a single input
    std::vector<Output> outputs;   // of each head of `program`
    std::shared_ptr<Arena> arena;  // holds them

    SampleKey key(int row) const {
        const auto i = static_cast<size_t>(row);
        const size_t each = windows.size() / positions.size();
        return {epoch_key, positions[i], attempts ? (*attempts)[i] : 0, each ? &windows[each * i] : nullptr};
    }
    size_t slot_row(int row) const {
        const auto i = static_cast<size_t>(row);
        return slot_rows ? static_cast<size_t>((*slot_rows)[i]) : i;
    }
    RowPlace place(int row) const { return {outputs, slot_row(row)}; }

    uint64_t record(int row) const { return static_cast<uint64_t>(cache->records[row]); }
    // A cache has the first input.
    bool has_cache(int input) const noexcept { return cache && input == 0; }
    bool keeps_images() const noexcept { return cache && cache->before; }
    // Returns the size that an input of a row must have; {0, 0}: any.
    Size wanted(const Turn& turn) const noexcept {
        if (annotated.empty() || turn.input != 0) return {};
        return annotated[static_cast<size_t>(turn.row)];
    }
    const JobInput& input(int number) const noexcept { return inputs[static_cast<size_t>(number)]; }
    const FileInput& files(int number) const noexcept { return *input(number).files; }
    bool reads_files(int number) const noexcept { return program && input(number).files; }
    bool reads_files_next() const noexcept { return reads_files(turn_at(next_turn).input); }
    // Returns the number of turns: a row has one for each input.
    int all_turns() const noexcept { return rows * static_cast<int>(std::max<size_t>(inputs.size(), 1)); }
    // Returns turn number `number`. Masks come first: most are decoded by Python threads, which would else
    // wait for the images.
    Turn turn_at(int number) const noexcept {
        if (turns) return (*turns)[static_cast<size_t>(number)];
        if (inputs.size() < 2) return {number, 0};
        return {number % rows, all_turns() / rows - 1 - number / rows};
    }
    // Sorts the turns by their place in the file, where some are parts of files.
    void sort_turns();
    // Returns whether `next` follows `turn` in the same file so closely that both are read together.
    bool are_neighbours(const Turn& turn, const Turn& next) const noexcept;
    Size& size_of(const Turn& turn) noexcept {
        return sizes[static_cast<size_t>(turn.input) * static_cast<size_t>(rows) +
                     static_cast<size_t>(turn.row)];
    }
    // Returns the failure of each bad row: of its first bad input, or of one that doesn't have the size of
    // the first input.
    std::vector<Failure> bad_rows();
    // Stores a row in the cache. `stale`: the stamp of the stored row that it replaces.
    void keep(int row, std::span<const uint8_t> bytes, const Stamp& stamp, const Outcome& made,
              const std::optional<Stamp>& stale) {
        if (cache->store && cache->store->put(record(row), bytes, stamp, made.damaged, made.truncated, stale))
            cache->store->set_checked(record(row));
    }

    std::optional<std::vector<Turn>> turns;  // in the order in which they are begun; see `turn_at`
    int next_turn = 0;                       // the first that no thread has begun; under the pool's lock
    bool first = false;                      // rows that Pillow decodes go before those of other jobs
    std::atomic<int> remaining{0};
    std::atomic<bool> cancelled{false};
    std::mutex mutex;
    std::vector<Failure> failures;
};

// An input of a row whose bytes Pillow decodes, in a Python thread.
struct ForeignRow {
    std::shared_ptr<Job> job;
    Turn turn;
    Buffer bytes;
    size_t size = 0;
    Stamp stamp;
    std::optional<Stamp> stale;  // of what is kept of it and is wrong
};

// A row that a thread is making, as `Pool::at_work` saw it.
struct AtWork {
    Heartbeat::Kind kind;
    int number;                    // of the thread among its pool's
    pid_t system_id;               // of the thread, in /proc
    uint64_t thread;               // of the thread, in pthreads and in Python
    std::weak_ptr<const Job> job;  // not its address, which a later job may have
    int row;
    uint64_t rows_begun;  // by that thread
    Phase phase;
    double begin_s;  // of the steady clock, later by what the row has waited for others
};

// A thread that an error has ended.
struct Broken {
    Heartbeat::Kind kind;
    int number;  // among its pool's
    std::string error;
};

struct PoolOptions {
    int workers = 1;
    int io_threads = 16;
    size_t read_ahead_bytes = 16 << 20;
    uint64_t side_bytes = 64 << 20;
    ReadPolicy reads;
};

// The work that a thread of a pool has done.
struct ThreadStats {
    Heartbeat::Kind kind;
    int number;  // among its pool's
    uint64_t rows;
    double busy_s;
};

struct PoolStats {
    uint64_t rows = 0;                       // made
    uint64_t bytes = 0;                      // of files that were read
    uint64_t foreign = 0;                    // of the rows, those that Pillow decodes
    uint64_t damaged = 0, truncated = 0;     // of the rows, those of files that aren't whole
    uint64_t redecoded = 0;                  // of the rows, those that libjpeg-turbo decoded again
    double decode_s = 0, decode_wait_s = 0;  // of all threads that make rows; without work, decoding threads
    double read_s = 0, read_wait_s = 0;      // of all threads; without work, those that read ahead
    Latency decode, read;                    // of each row, each file
    std::vector<ThreadStats> threads;
    int decoders = 0;                              // threads that decode, of those that there are
    int readers = 0;                               // threads that read ahead, while that pays
    uint64_t retries = 0, hedged = 0;              // of reads
    double slowest_read_s = 0;                     // of all tries that have ended
    uint64_t opens = 0, ranges = 0;                // of files; neighbours read together are one range
    uint64_t side_bytes = 0, side_peak_bytes = 0;  // of the side arena
    uint64_t read_ahead_bytes = 0, read_ahead_peak_bytes = 0;  // in buffers of encoded samples
    bool reading_ahead = false;
};

class StateLock;

class Pool : public std::enable_shared_from_this<Pool> {
  public:
    Pool(const PoolOptions& options, std::shared_ptr<Bell> bell);
    ~Pool();

    // Adds a job behind all others, or with `first` before all rows that no thread has begun.
    void submit(std::shared_ptr<Job> job, bool first = false);
    // Gives up the rows that no thread has begun; the job still finishes.
    void cancel(const std::shared_ptr<Job>& job);

    // Lets `workers` of the decoding threads work at once, at least one; the others wait.
    void employ(int workers);

    // Waits for a row that Pillow decodes. Returns false when the pool is closed.
    bool take_foreign(ForeignRow& out);
    int foreign_waiting() const;
    // Makes the row, of which `pillow` decodes the bytes.
    void make_foreign(ForeignRow& row, Fallback& pillow);

    // Returns the first thread that an error ended. Its rows are never done.
    std::optional<Broken> broken() const;

    // Returns the rows that threads are making now.
    std::vector<AtWork> at_work() const;
    // Gives up a row and its whole job; rows that no thread has begun are dropped. The job isn't done before
    // the row's thread returns, which then ends. A new thread replaces it; the caller starts one for
    // Pillow's. Returns false if the row isn't at work any more. Throws std::system_error if the system
    // allows no more threads.
    bool give_up(const AtWork& row);

    // Ends all threads. Returns false if some were still inside a system call after `patience`: these end by
    // themselves, and memory that they may still write stays alive until then.
    bool close(std::chrono::milliseconds patience);

    PoolStats stats() const;

  private:
    friend class StateLock;
    struct State;
    void end_foreign(ForeignRow& row, Outcome outcome);

    std::shared_ptr<State> state_;
};

}  // namespace standpipe
