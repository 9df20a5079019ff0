// The state that the threads of a pool share. Only files of native/pool include it.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "pool/pool.h"

namespace standpipe {

// An input of a row that has been read.
struct ReadyRow {
    std::shared_ptr<Job> job;
    Turn turn;
    ReadResult read;
    std::optional<CachedRow> kept;  // the cache's row; its bytes are in `read`, if they were read
    std::optional<Stamp> stale;     // of the cache's row, which is replaced when the row is made again
};

// Returns the outcome of a row whose file couldn't be read, or that isn't wanted since the pool was closed.
Outcome without_file(ReadyRow& row);

struct Pool::State : std::enable_shared_from_this<Pool::State> {
    State(const PoolOptions& given, std::shared_ptr<Bell> b)
        : options(given), bell(std::move(b)), side(given.side_bytes) {}

    const PoolOptions options;
    const std::shared_ptr<Bell> bell;
    SideArena side;
    const std::shared_ptr<BufferPool> buffers = std::make_shared<BufferPool>(options.read_ahead_bytes);
    const std::shared_ptr<Reader> reader = std::make_shared<Reader>(options.reads, buffers, max_encoded());

    mutable std::mutex mutex;
    std::condition_variable decoders, spare_decoders, readers, foreigners, ended;
    std::deque<std::shared_ptr<Job>> unread;  // jobs with rows that nobody has begun
    std::deque<ReadyRow> ready;
    std::deque<ForeignRow> foreign;
    bool closed = false, ahead = false;
    const Heartbeat* broken = nullptr;  // of the first thread that an error ended
    std::array<char, 80> broken_by{};
    int alive = 0, num_readers = 0;
    int employed = options.workers, on_duty = 0;  // decoding threads: that may work at once, and that do;
                                                  // of Pillow's as many may work
    std::vector<std::unique_ptr<Heartbeat>> heartbeats;
    int reading = 0;                               // rows in the hands of reading threads
    double mean_blocked_s = 0, blocked_share = 0;  // of recent reads
    double long_mean_blocked_s = 0;                // of more of them
    int calm_reads = 0;
    PoolStats stats;
    std::mutex counting;  // taken last
    RowCounts counts;     // under it

    // Functions that need the lock.
    // The conditions for which threads of each kind wait:
    bool decoder_has_work() const noexcept;
    bool spare_decoder_has_work() const noexcept { return closed || on_duty < employed; }
    bool reader_has_work() const noexcept {
        return closed || (ahead && !unread.empty() && unread.front()->reads_files_next());
    }
    bool pillow_has_work() const noexcept {
        return closed || (!foreign.empty() && pillows_at_work() < employed);
    }
    std::unique_ptr<Heartbeat> new_heartbeat(Heartbeat::Kind kind);  // one that there is room for
    void begin(Heartbeat& heartbeat, std::shared_ptr<Job> job, int row, Phase phase);
    // Returns whether a reading thread is in a read that takes far longer than others.
    bool reads_stall() const;
    // Takes the next row in order that no thread has begun.
    bool take_unread(ReadyRow& out);
    // Takes the next row, and those behind it that are read together with it. Returns how many.
    size_t take_neighbours(std::span<ReadyRow> out);
    // Decides whether reading ahead pays.
    void note_read(Heartbeat::Clock::duration took, const ReadyRow& row);
    // Notes that a thread has finished with its row. `ended`: no other thread continues with the row.
    void note_row(Heartbeat& heartbeat, Heartbeat::Clock::duration took, bool ended);
    // Starts a thread. Throws std::system_error if the system allows no more threads.
    void start(Heartbeat::Kind kind);
    // Makes the calling thread, which decodes, wait while more threads than `employed` decode.
    void make_way(StateLock& lock);
    void start_readers();
    int pillows_at_work() const noexcept;

    // Functions that don't need the lock, except those that get it as an argument.
    void read(ReadyRow& row);
    // Reads the first of some rows that are neighbours in one file, and those for which there are buffers at
    // once. Returns how many.
    size_t read_some(std::span<ReadyRow> rows, bool& one_by_one);
    FileRange range_of(const ReadyRow& row) const;
    ReadResult read_file(const ReadyRow& row);
    // Returns whether the cache has the row. It is in `kept` then, and its bytes in `read`, unless they are
    // images in memory that go into the slot.
    bool find_kept(ReadyRow& row);
    // Returns the row of the cache, after comparing it with its file if that wasn't done yet. A row of no use
    // becomes `stale`.
    std::optional<CachedRow> look_up(ReadyRow& row);
    // Reads a row of the cache into a buffer.
    bool read_kept(ReadyRow& row, const CachedRow& kept);
    // Makes a row of its bytes or pixels by `program`, which writes to `out`.
    Outcome make_of_source(RowMaker& maker, ReadyRow& row, const Program& program, const RowPlace& out);
    Outcome make_kept(RowMaker& maker, ReadyRow& row);
    std::optional<Outcome> make_of_kept(RowMaker& maker, ReadyRow& row);
    // Runs a thread of the pool, from its beginning to its end.
    void work(Heartbeat& heartbeat) noexcept;
    void decode_loop(Heartbeat& heartbeat);
    void read_loop(Heartbeat& heartbeat);
    Outcome make_row(RowMaker& maker, ReadyRow& row);
    Outcome make_composed(RowMaker& maker, const Job& job, int row);
    // Makes a row. Returns whether it is finished; else another thread has it now.
    bool run_row(RowMaker& maker, ReadyRow& row) noexcept;
    bool goes_to_pillow(ReadyRow& row);
    // Reads neighbours. Releases the lock while it reads.
    void read_and_hand_on(StateLock& lock, Heartbeat& heartbeat, std::span<ReadyRow> rows);
    // Passes a row that was read to the threads that continue with it.
    void hand_on(StateLock& lock, ReadyRow row) noexcept;
    void finish(Job& job, const Turn& turn, Outcome outcome) noexcept;

    // Returns the bytes of a buffer that count in the side arena. A buffer above the whole read-ahead is lent
    // when no other is lent; the side arena counts what is beyond.
    uint64_t uncounted(const Buffer& buffer) const noexcept {
        return std::max<uint64_t>(buffer.capacity(), options.read_ahead_bytes) - options.read_ahead_bytes;
    }
    uint64_t max_encoded() const { return std::max<uint64_t>(options.side_bytes, options.read_ahead_bytes); }
};

// Holds the lock of a pool's state, for code that may change it. When the lock is released, even for a wait,
// it wakes one thread of each kind that has work now. That thread holds the lock in turn, and so wakes the
// next one. Nothing else notifies, so no change can be forgotten.
class StateLock {
  public:
    explicit StateLock(Pool::State& state) : state_(state), lock_(state.mutex) {}
    ~StateLock() {
        if (lock_.owns_lock()) unlock();
    }
    StateLock(const StateLock&) = delete;
    StateLock& operator=(const StateLock&) = delete;

    void lock() { lock_.lock(); }
    void unlock() noexcept {
        const Wakes wakes = due();
        lock_.unlock();
        wake(wakes);
    }
    // Waits until `has_work()`.
    template <typename HasWork>
    void wait(std::condition_variable& changed, HasWork has_work) {
        while (!has_work()) {
            wake(due());
            changed.wait(lock_);
        }
    }
    bool wait_for_end(std::chrono::steady_clock::time_point ends) {
        wake(due());
        return state_.ended.wait_until(lock_, ends, [this] { return state_.alive == 0; });
    }

  private:
    // The kinds of threads that have work.
    struct Wakes {
        bool decoder, spare_decoder, reader, pillow, closer, all;
    };
    Wakes due() const noexcept;
    void wake(const Wakes& wakes) noexcept;

    Pool::State& state_;
    std::unique_lock<std::mutex> lock_;
};

}  // namespace standpipe
