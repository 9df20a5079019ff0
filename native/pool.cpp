#include "pool.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <new>
#include <system_error>
#include <thread>

#include "signals.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// Waits for storage of this mean length are worth the hop through a reading thread (about 20 µs).
// One wait proves nothing: on a busy machine any lock can cost milliseconds.
constexpr double kSlowRead_s = 100e-6, kFastRead_s = 20e-6, kOftenBlocked = 0.5;
constexpr double kReadWeight = 1.0 / 16;  // of the newest read in the running mean
// Reads that are seldom slow, and very, cost as much: one in a hundred of some seconds. So over more of them.
constexpr double kCostlyRead_s = 2e-3, kLongReadWeight = 1.0 / 256;
constexpr int kCalmReads = 512;  // reads without a wait in a row before reading ahead ends
// Decoding threads read themselves only when the reading threads are done: not while one of these is stuck.
constexpr auto kLongRead = std::chrono::milliseconds(100);

// libjpeg allocates and frees some hundred kB for every image. They come from the top of the thread's heap,
// which the C library gives back to the system each time, only to fault it in again page by page (2% of a
// row's time). A small block above a hole of that size keeps the top from moving.
class HeapPin {
  public:
    HeapPin() {
        std::vector<std::unique_ptr<char[]>> hole;
        for (int i = 0; i < 12; ++i) hole.push_back(std::make_unique_for_overwrite<char[]>(100'000));
        pin_ = std::make_unique<char[]>(16);
    }

  private:
    std::unique_ptr<char[]> pin_;
};

struct ReadyRow {
    std::shared_ptr<Job> job;
    int row = 0;
    ReadResult read;
};

}  // namespace

struct Pool::State : std::enable_shared_from_this<Pool::State> {
    State(const PoolOptions& given, std::shared_ptr<Bell> b)
        : options(given), bell(std::move(b)), side(given.side_bytes) {}

    const PoolOptions options;
    const std::shared_ptr<Bell> bell;
    SideArena side;
    const std::shared_ptr<BufferPool> buffers = std::make_shared<BufferPool>(options.read_ahead_bytes);
    const std::shared_ptr<Reader> reader = std::make_shared<Reader>(options.reads, buffers, max_encoded());

    mutable std::mutex mutex;
    std::condition_variable decoders, readers, foreigners, ended;
    std::deque<std::shared_ptr<Job>> unread;  // jobs with rows that nobody has begun
    std::deque<ReadyRow> ready;
    std::deque<ForeignRow> foreign;
    bool closed = false, ahead = false;
    int alive = 0, num_readers = 0;
    std::vector<std::unique_ptr<Desk>> desks;
    int reading = 0;                               // rows in the hands of reading threads
    double mean_blocked_s = 0, blocked_share = 0;  // of recent reads
    double long_mean_blocked_s = 0;                // of more of them
    int calm_reads = 0;
    PoolStats stats;
    std::atomic<uint64_t> damaged{0}, truncated{0};  // rows; counted without the lock

    std::unique_ptr<Desk> new_desk(Desk::Kind kind);
    void begin(Desk& desk, std::shared_ptr<Job> job, int row, Phase phase);
    bool reads_stall() const;
    bool take_unread(ReadyRow& out);
    void note_read(double seconds, const ReadResult& read);
    ReadResult read(const ReadyRow& row);
    void decode_loop(Desk& desk);
    void read_loop(Desk& desk);
    Outcome make_row(RowMaker& maker, ReadyRow& row);
    void run_row(RowMaker& maker, ReadyRow& row);
    void finish(Job& job, int row, Outcome outcome);
    // A buffer above the whole read-ahead is lent when no other is; what it has too much is the side arena's.
    uint64_t uncounted(const Buffer& buffer) const noexcept {
        return std::max<uint64_t>(buffer.capacity(), options.read_ahead_bytes) - options.read_ahead_bytes;
    }
    uint64_t max_encoded() const { return std::max<uint64_t>(options.side_bytes, options.read_ahead_bytes); }

    void start_readers();

    // Threads own the state with the pool, so that one stuck in a system call can outlive it. The lock is
    // held. Throws std::system_error when the system allows no more threads.
    void start(Desk::Kind kind) {
        auto desk = new_desk(kind);
        const SignalsBlocked blocked;
        std::thread([state = shared_from_this(), desk = desk.get()] {
            if (desk->kind == Desk::Kind::reader) state->read_loop(*desk);
            else state->decode_loop(*desk);
            std::scoped_lock lock(state->mutex);
            --state->alive;
            state->ended.notify_all();
        }).detach();
        ++alive;
        desks.push_back(std::move(desk));
    }
};

// One that there is room for. The lock is held.
std::unique_ptr<Desk> Pool::State::new_desk(Desk::Kind kind) {
    desks.reserve(desks.size() + 1);
    return std::make_unique<Desk>(kind, static_cast<int>(desks.size()));
}

// The lock is held.
void Pool::State::begin(Desk& desk, std::shared_ptr<Job> job, int row, Phase phase) {
    desk.job = std::move(job);
    desk.row = row;
    ++desk.rows_begun;
    desk.begin = Clock::now();
    desk.phase = phase;
    desk.waited = Clock::duration::zero();
}

// Whether a thread that reads ahead is in a read that takes far longer than others; the lock is held.
bool Pool::State::reads_stall() const {
    const auto long_ago = Clock::now() - kLongRead;
    return std::ranges::any_of(desks, [&](const auto& desk) {
        return desk->kind == Desk::Kind::reader && desk->job && !desk->given_up && desk->begin < long_ago;
    });
}

// The next row in order that nobody has begun; the lock is held.
bool Pool::State::take_unread(ReadyRow& out) {
    if (unread.empty()) return false;
    out.job = unread.front();
    out.row = out.job->next_row++;
    if (out.job->next_row == out.job->rows) unread.pop_front();
    return true;
}

ReadResult Pool::State::read(const ReadyRow& row) {
    const FileInput& files = row.job->files;
    const int64_t begin = row.row == 0 ? 0 : files.ends[row.row - 1], end = files.ends[row.row];
    const FileRange range{
        {reinterpret_cast<const char*>(files.blob) + begin, static_cast<size_t>(end - begin)},
        files.offset[row.row],
        files.length[row.row],
        max_encoded()};
    return reader->read(range, *buffers);
}

// Decides whether reading ahead pays; the lock is held.
void Pool::State::note_read(double seconds, const ReadResult& read) {
    stats.read_s += seconds;
    stats.bytes += read.size;
    mean_blocked_s += (read.blocked_s - mean_blocked_s) * kReadWeight;
    long_mean_blocked_s += (read.blocked_s - long_mean_blocked_s) * kLongReadWeight;
    blocked_share += ((read.blocked_s > 0 ? 1.0 : 0.0) - blocked_share) * kReadWeight;
    calm_reads = read.blocked_s == 0 ? calm_reads + 1 : 0;
    const bool often_slow = mean_blocked_s > kSlowRead_s && blocked_share > kOftenBlocked;
    if (!ahead && (often_slow || long_mean_blocked_s > kCostlyRead_s)) {
        if (num_readers == 0) start_readers();
        ahead = num_readers > 0;
        calm_reads = 0;
        readers.notify_all();
    } else if (ahead && mean_blocked_s < kFastRead_s && calm_reads > kCalmReads && !reads_stall()) {
        long_mean_blocked_s = 0;
        ahead = false;
        decoders.notify_all();
    }
}

void Pool::State::finish(Job& job, int row, Outcome outcome) {
    damaged += outcome.damaged;
    truncated += outcome.truncated;
    if (outcome.kind != Outcome::Kind::ok) {
        std::scoped_lock lock(job.mutex);
        job.failures.push_back({row, std::move(outcome)});
    }
    if (--job.remaining == 0) bell->ring();
}

Outcome Pool::State::make_row(RowMaker& maker, ReadyRow& row) {
    Job& job = *row.job;
    for (const CopyInput& copy : job.copies) {
        if (copy.rows[row.row] < 0) continue;
        std::memcpy(copy.out + job.slot_row(row.row) * copy.row_bytes,
                    copy.base + static_cast<size_t>(copy.rows[row.row]) * copy.row_bytes, copy.row_bytes);
    }
    if (!job.program) return {};
    const SampleKey key = job.key(row.row);
    uint8_t* out = job.image_row(row.row);
    if (!job.reads_files()) {
        const auto from = std::ranges::find_if(
            job.pixels, [&](const PixelInput& input) { return input.rows[row.row] >= 0; });
        if (from == job.pixels.end()) return Outcome::decode_error("its pixels are in no array");
        const size_t record_bytes =
            size_t{3} * static_cast<size_t>(from->size.height) * static_cast<size_t>(from->size.width);
        const uint8_t* rgb = from->base + static_cast<size_t>(from->rows[row.row]) * record_bytes;
        return maker.from_pixels(*job.program, rgb, from->size, key, out);
    }
    if (!row.read.error.empty()) return {Outcome::Kind::read_error, false, std::move(row.read.error)};
    return maker.from_encoded(*job.program, {row.read.buffer.data(), row.read.size}, key, out,
                              uncounted(row.read.buffer));
}

void Pool::State::run_row(RowMaker& maker, ReadyRow& row) {
    Outcome outcome;
    try {
        outcome = make_row(maker, row);
    } catch (const std::bad_alloc&) {
        outcome = Outcome::decode_error("the machine has no memory left to decode it");
    }
    if (outcome.kind != Outcome::Kind::foreign) return finish(*row.job, row.row, std::move(outcome));
    std::scoped_lock lock(mutex);
    if (closed) return finish(*row.job, row.row, {Outcome::Kind::cancelled, false, {}});
    ++stats.foreign;
    foreign.push_back({row.job, row.row, std::move(row.read.buffer), row.read.size});
    foreigners.notify_one();
}

// Rows that were read ahead come first. While nobody reads ahead, a decoding thread reads its row itself:
// warm in the page cache that is quicker than handing it over. Not before the reading threads are done with
// theirs: with all decoding threads waiting for buffers, nobody would be left to empty those.
void Pool::State::decode_loop(Desk& desk) {
    const HeapPin pin;
    RowMaker maker(side);
    std::unique_lock lock(mutex);
    desk.sit_down();
    const auto has_work = [this] {
        return closed || !ready.empty() ||
               (!unread.empty() && !((ahead || reading > 0) && unread.front()->reads_files()));
    };
    for (;;) {
        if (!has_work()) {
            const auto start = Clock::now();
            decoders.wait(lock, has_work);
            stats.wait_s += seconds_since(start);
        }
        ReadyRow row;
        bool was_read = false;
        if (!ready.empty()) {
            row = std::move(ready.front());
            ready.pop_front();
            was_read = true;
        } else if (closed || !take_unread(row)) {
            return;
        }
        const bool reads = !was_read && row.job->reads_files();
        begin(desk, row.job, row.row, reads ? Phase::reading : Phase::decoding);
        auto start = desk.begin;
        lock.unlock();
        if (reads && !row.job->cancelled) {
            row.read = read(row);
            const double read_s = seconds_since(start);
            lock.lock();
            note_read(read_s, row.read);
            lock.unlock();
            start = Clock::now();
            desk.phase = Phase::decoding;
        }
        const bool made = !row.job->cancelled;
        if (made) run_row(maker, row);
        else finish(*row.job, row.row, {Outcome::Kind::cancelled, false, {}});
        const double decode_s = seconds_since(start);
        row = {};
        lock.lock();
        desk.job.reset();
        if (made) stats.decode_s += decode_s;
        stats.rows += made;
        if (desk.given_up) return;
    }
}

void Pool::State::read_loop(Desk& desk) {
    std::unique_lock lock(mutex);
    desk.sit_down();
    const auto has_work = [this] {
        return closed || (ahead && !unread.empty() && unread.front()->reads_files());
    };
    for (;;) {
        readers.wait(lock, has_work);
        ReadyRow row;
        if (closed || !take_unread(row)) return;
        ++reading;
        begin(desk, row.job, row.row, Phase::reading);
        // Rows in memory may follow now, and those need a decoding thread.
        if (!unread.empty() && !unread.front()->reads_files()) decoders.notify_one();
        lock.unlock();
        if (!row.job->cancelled) row.read = read(row);
        const double read_s = seconds_since(desk.begin);
        lock.lock();
        note_read(read_s, row.read);
        ready.push_back(std::move(row));
        desk.job.reset();
        if (desk.given_up) return decoders.notify_one();
        if (--reading == 0 && !ahead) decoders.notify_all();
        else decoders.notify_one();
    }
}

// The lock is held.
void Pool::State::start_readers() {
    try {
        for (; num_readers < options.io_threads; ++num_readers) start(Desk::Kind::reader);
    } catch (const std::system_error&) {
        // Fewer will do, and without any the decoding threads go on reading.
    }
}

Pool::Pool(const PoolOptions& options, std::shared_ptr<Bell> bell)
    : state_(std::make_shared<State>(options, std::move(bell))) {
    std::scoped_lock lock(state_->mutex);
    try {
        for (int i = 0; i < options.workers; ++i) state_->start(Desk::Kind::decoder);
    } catch (...) {
        state_->closed = true;
        state_->decoders.notify_all();
        throw;
    }
}

Pool::~Pool() { close(std::chrono::milliseconds(0)); }

void Pool::submit(std::shared_ptr<Job> job, bool first) {
    job->remaining = job->rows;
    std::scoped_lock lock(state_->mutex);
    std::deque<std::shared_ptr<Job>>& unread = state_->unread;
    unread.insert(first ? unread.begin() : unread.end(), std::move(job));
    state_->decoders.notify_all();
    state_->readers.notify_all();
}

void Pool::cancel(const std::shared_ptr<Job>& job) {
    job->cancelled = true;
    std::scoped_lock lock(state_->mutex);
    state_->decoders.notify_all();
}

bool Pool::take_foreign(ForeignRow& out) {
    State& s = *state_;
    std::unique_lock lock(s.mutex);
    if (!Desk::mine()) {
        s.desks.push_back(s.new_desk(Desk::Kind::pillow));
        s.desks.back()->sit_down();
    }
    Desk* const desk = Desk::mine();
    for (;;) {
        if (!desk->given_up) s.foreigners.wait(lock, [&] { return s.closed || !s.foreign.empty(); });
        if (s.closed || desk->given_up) {
            Desk::mine() = nullptr;
            return false;
        }
        out = std::move(s.foreign.front());
        s.foreign.pop_front();
        if (!out.job->cancelled) {
            s.begin(*desk, out.job, out.row, Phase::decoding);
            return true;
        }
        lock.unlock();
        out.bytes.reset();
        end_foreign(out, {Outcome::Kind::cancelled, false, {}});
        lock.lock();
    }
}

int Pool::foreign_waiting() const {
    std::scoped_lock lock(state_->mutex);
    return static_cast<int>(state_->foreign.size());
}

std::string Pool::reserve_for(ForeignRow& row, Size size, uint64_t frame_bytes) {
    SideArena& side = state_->side;
    SideArena none(0);
    uint64_t bytes = 0;
    std::string text =
        RowMaker(none).bytes_from_pixels(*row.job->program, size, row.job->key(row.row), bytes);
    if (!text.empty()) return text;
    bytes += frame_bytes + state_->uncounted(row.bytes);
    if (bytes > side.cap()) return over_side_cap(bytes, side.cap());
    if (!side.acquire(bytes)) return "the loader was closed";
    row.reserved = bytes;
    return {};
}

void Pool::finish_foreign(ForeignRow& row, const uint8_t* rgb, Size size, bool truncated) {
    Job& job = *row.job;
    row.bytes.reset();
    // Of what was reserved: waiting for the shared arena while holding a part of it could wait for ever.
    SideArena own(row.reserved);
    RowMaker maker(own);
    Outcome outcome = maker.from_pixels(*job.program, rgb, size, job.key(row.row), job.image_row(row.row));
    outcome.truncated = truncated && outcome.kind == Outcome::Kind::ok;
    end_foreign(row, std::move(outcome));
}

void Pool::fail_foreign(ForeignRow& row, std::string text) {
    row.bytes.reset();
    end_foreign(row, Outcome::decode_error(std::move(text)));
}

void Pool::release_foreign(ForeignRow& row) noexcept {
    if (row.reserved) state_->side.release(row.reserved);
    row.reserved = 0;
}

void Pool::end_foreign(ForeignRow& row, Outcome outcome) {
    state_->finish(*row.job, row.row, std::move(outcome));
    std::scoped_lock lock(state_->mutex);
    if (Desk* const desk = Desk::mine()) desk->job.reset();
}

std::vector<AtWork> Pool::at_work() const {
    std::scoped_lock lock(state_->mutex);
    std::vector<AtWork> found;
    for (const auto& desk : state_->desks) {
        if (!desk->job || desk->given_up) continue;
        const std::chrono::duration<double> begin = (desk->begin + desk->waited.load()).time_since_epoch();
        found.push_back({desk->kind, desk->number, desk->system_id, desk->thread, desk->job.get(), desk->row,
                         desk->rows_begun, desk->phase, begin.count()});
    }
    return found;
}

bool Pool::give_up(const AtWork& row) {
    State& s = *state_;
    std::scoped_lock lock(s.mutex);
    Desk& desk = *s.desks.at(static_cast<size_t>(row.number));
    if (s.closed || desk.given_up || !desk.job || desk.rows_begun != row.rows_begun) return false;
    if (desk.kind != Desk::Kind::pillow) s.start(desk.kind);
    desk.given_up = true;
    desk.job->cancelled = true;
    if (desk.kind == Desk::Kind::reader) --s.reading;
    s.decoders.notify_all();
    return true;
}

bool Pool::close(std::chrono::milliseconds patience) {
    State& s = *state_;
    const auto ends = Clock::now() + patience;
    std::unique_lock lock(s.mutex);
    s.closed = true;
    // Rows in flight finish; what nobody has begun is dropped with its buffers.
    s.unread.clear();
    s.ready.clear();
    s.foreign.clear();
    s.decoders.notify_all();
    s.readers.notify_all();
    s.foreigners.notify_all();
    lock.unlock();
    s.side.close();
    s.buffers->close();
    s.reader->close(std::chrono::milliseconds(0));
    lock.lock();
    const bool all_ended = s.ended.wait_until(lock, ends, [&] { return s.alive == 0; });
    lock.unlock();
    // Its own threads write into no slot: nothing has to be kept for one that is stuck.
    s.reader->close(std::chrono::duration_cast<std::chrono::milliseconds>(ends - Clock::now()));
    return all_ended;
}

PoolStats Pool::stats() const {
    std::scoped_lock lock(state_->mutex);
    PoolStats stats = state_->stats;
    stats.damaged = state_->damaged;
    stats.truncated = state_->truncated;
    stats.side_bytes = state_->side.used();
    stats.side_peak_bytes = state_->side.peak();
    stats.read_ahead_bytes = state_->buffers->total();
    stats.read_ahead_peak_bytes = state_->buffers->peak();
    stats.reading_ahead = state_->ahead;
    const ReadStats reads = state_->reader->stats();
    stats.retries = reads.retries;
    stats.hedged = reads.hedged;
    stats.slowest_read_s = reads.slowest_s;
    return stats;
}

}  // namespace penstock
