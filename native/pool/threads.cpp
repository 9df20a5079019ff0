// The threads of a pool: those that decode, and those that read ahead of them while storage is slow.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "pool/state.h"
#include "system/signals.h"

namespace standpipe {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

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
    HeapPin() noexcept {
        try {
            std::vector<std::unique_ptr<char[]>> hole;
            for (int i = 0; i < 12; ++i) hole.push_back(std::make_unique_for_overwrite<char[]>(100'000));
            pin_ = std::make_unique<char[]>(16);
        } catch (const std::bad_alloc&) {
            // It only saves time.
        }
    }

  private:
    std::unique_ptr<char[]> pin_;
};

}  // namespace

std::unique_ptr<Heartbeat> Pool::State::new_heartbeat(Heartbeat::Kind kind) {
    heartbeats.reserve(heartbeats.size() + 1);
    return std::make_unique<Heartbeat>(kind, static_cast<int>(heartbeats.size()));
}

void Pool::State::begin(Heartbeat& heartbeat, std::shared_ptr<Job> job, int row, Phase phase) {
    heartbeat.job = std::move(job);
    heartbeat.row = row;
    ++heartbeat.rows_begun;
    heartbeat.begin = Clock::now();
    heartbeat.phase = phase;
    heartbeat.waited = Clock::duration::zero();
}

// Threads own the state with the pool, so that one stuck in a system call can outlive it.
void Pool::State::start(Heartbeat::Kind kind) {
    auto heartbeat = new_heartbeat(kind);
    const SignalsBlocked blocked;
    std::thread([state = shared_from_this(), heartbeat = heartbeat.get()] {
        state->work(*heartbeat);
    }).detach();
    ++alive;
    on_duty += heartbeat->kind == Heartbeat::Kind::decoder;
    heartbeats.push_back(std::move(heartbeat));
}

void Pool::State::work(Heartbeat& heartbeat) noexcept {
    std::array<char, 80> error{};
    try {
        if (heartbeat.kind == Heartbeat::Kind::reader) read_loop(heartbeat);
        else decode_loop(heartbeat);
    } catch (const std::bad_alloc&) {
        std::strcpy(error.data(), kNoMemory);
    } catch (const std::exception& unforeseen) {
        std::strncpy(error.data(), unforeseen.what(), error.size() - 1);
    }
    {
        StateLock lock(*this);
        --alive;
        if (error[0] && !broken) {
            broken = &heartbeat;
            broken_by = error;
        }
    }
    if (error[0]) bell->ring();
}

StateLock::Wakes StateLock::due() const noexcept {
    const Pool::State& s = state_;
    return {.decoder = s.decoder_has_work(),
            .spare_decoder = s.spare_decoder_has_work(),
            .reader = s.reader_has_work(),
            .pillow = s.pillow_has_work(),
            .closer = s.closed && s.alive == 0,
            .all = s.closed};
}

void StateLock::wake(const Wakes& wakes) noexcept {
    const auto notify = [&](bool has_work, std::condition_variable& changed) {
        if (!has_work) return;
        if (wakes.all) changed.notify_all();
        else changed.notify_one();
    };
    notify(wakes.decoder, state_.decoders);
    notify(wakes.spare_decoder, state_.spare_decoders);
    notify(wakes.reader, state_.readers);
    notify(wakes.pillow, state_.foreigners);
    notify(wakes.closer, state_.ended);
}

void Pool::State::make_way(StateLock& lock) {
    if (on_duty <= employed) return;
    --on_duty;
    lock.wait(spare_decoders, [this] { return spare_decoder_has_work(); });
    ++on_duty;
}

// Rows that were read ahead come first. While nobody reads ahead, a decoding thread reads its row itself:
// warm in the page cache that is quicker than handing it over. Not before the reading threads are done with
// theirs: with all decoding threads waiting for buffers, nobody would be left to empty those.
bool Pool::State::decoder_has_work() const noexcept {
    return closed || on_duty > employed || !ready.empty() ||
           (!unread.empty() && !((ahead || reading > 0) && unread.front()->reads_files_next()));
}

// Threads that wait for a buffer don't count: they get one when a row that was read is decoded.
bool Pool::State::reads_stall() const {
    return std::ranges::any_of(heartbeats, [&](const auto& heartbeat) {
        const bool reads =
            heartbeat->kind == Heartbeat::Kind::reader && heartbeat->job && !heartbeat->given_up;
        return reads && heartbeat->phase != Phase::waiting && heartbeat->worked() > kLongRead;
    });
}

bool Pool::State::take_unread(ReadyRow& out) {
    if (unread.empty()) return false;
    out.job = unread.front();
    out.turn = out.job->turn_at(out.job->next_turn++);
    if (out.job->next_turn == out.job->all_turns()) unread.pop_front();
    return true;
}

void Pool::State::read(ReadyRow& row) {
    Job& job = *row.job;
    try {
        const bool has_cache = job.has_cache(row.turn.input);
        if (has_cache && find_kept(row)) return;
        row.read = {};  // others may wait for its buffer
        row.read = read_file(row);
        if (has_cache && !job.keeps_images() && row.read.error.empty())
            job.keep(row.turn.row, {row.read.buffer.data(), row.read.size}, row.read.stamp, {}, row.stale);
    } catch (const std::bad_alloc&) {
        row.read = {};
        row.read.error = kNoMemory;
    }
}

FileRange Pool::State::range_of(const ReadyRow& row) const {
    const FileInput& files = row.job->files(row.turn.input);
    const int at = row.turn.row;
    const auto of_file = [at](std::optional<const int64_t*> column) { return column ? (*column)[at] : -1; };
    return {std::string(files.path(at)), files.offset[at],        files.length[at],     max_encoded(),
            of_file(files.file_bytes),   of_file(files.mtime_ns), of_file(files.crc32c)};
}

ReadResult Pool::State::read_file(const ReadyRow& row) { return reader->read(range_of(row), *buffers); }

void Pool::State::note_row(Heartbeat& heartbeat, Clock::duration took, bool ended) {
    stats.decode_s += seconds(took);
    heartbeat.busy += took;
    if (!ended) return;
    ++heartbeat.rows_ended;
    stats.decode.add(took);
}

void Pool::State::note_read(Clock::duration took, const ReadyRow& row) {
    const ReadResult& read = row.read;
    stats.read_s += seconds(took);
    if (!row.kept) {  // what a cache had is no file
        stats.read.add(took);
        stats.bytes += read.size;
    }
    mean_blocked_s += (read.blocked_s - mean_blocked_s) * kReadWeight;
    long_mean_blocked_s += (read.blocked_s - long_mean_blocked_s) * kLongReadWeight;
    blocked_share += ((read.blocked_s > 0 ? 1.0 : 0.0) - blocked_share) * kReadWeight;
    calm_reads = read.blocked_s == 0 ? calm_reads + 1 : 0;
    const bool often_slow = mean_blocked_s > kSlowRead_s && blocked_share > kOftenBlocked;
    if (!ahead && (often_slow || long_mean_blocked_s > kCostlyRead_s)) {
        if (num_readers == 0) start_readers();
        ahead = num_readers > 0;
        calm_reads = 0;
    } else if (ahead && mean_blocked_s < kFastRead_s && calm_reads > kCalmReads && !reads_stall()) {
        long_mean_blocked_s = 0;
        ahead = false;
    }
}

// submit() has made room for all failures that there can be.
void Pool::State::finish(Job& job, const Turn& turn, Outcome outcome) noexcept {
    {
        std::scoped_lock lock(counting);
        counts.add(outcome);
    }
    if (!job.sizes.empty()) job.size_of(turn) = outcome.size;
    if (outcome.kind != Outcome::Kind::ok) {
        std::scoped_lock lock(job.mutex);
        job.failures.push_back({turn.row, turn.input, std::move(outcome)});
    }
    if (--job.remaining == 0) bell->ring();
}

Outcome without_file(ReadyRow& row) {
    const auto kind = row.read.closed ? Outcome::Kind::cancelled : Outcome::Kind::read_error;
    return {kind, false, std::move(row.read.error)};
}

Outcome Pool::State::make_row(RowMaker& maker, ReadyRow& row) {
    Job& job = *row.job;
    const int at = row.turn.row;
    for (const CopyInput& copy : job.copies) {
        const auto record = row.turn.input == 0 ? copy.records.of(at) : std::nullopt;
        if (record)
            std::memcpy(copy.out + job.slot_row(at) * copy.row_bytes, copy.base + *record * copy.row_bytes,
                        copy.row_bytes);
    }
    if (!job.program) return {};
    if (job.composer) return make_composed(maker, job, at);
    if (job.keeps_images()) return make_kept(maker, row);
    return make_of_source(maker, row, *job.program, job.place(at));
}

Outcome Pool::State::make_of_source(RowMaker& maker, ReadyRow& row, const Program& program,
                                    const RowPlace& out) {
    const Job& job = *row.job;
    const Turn turn = row.turn;
    const auto make = [&](const InputData& data) {
        return maker.make(program, static_cast<size_t>(turn.input), data,
                          {job.key(turn.row), out, job.wanted(turn)});
    };
    if (job.reads_files(turn.input)) {
        if (!row.read.error.empty()) return without_file(row);
        return make(Encoded{{row.read.buffer.data(), row.read.size}, uncounted(row.read.buffer)});
    }
    for (const PixelInput& from : job.input(turn.input).pixels)
        if (const auto record = from.records.of(turn.row)) return make(from.of(*record));
    return Outcome::decode_error("its pixels are in no array");
}

Outcome Pool::State::make_composed(RowMaker& maker, const Job& job, int row) {
    const size_t each = job.composer->frames();
    std::vector<const ImageFrame*> frames(each);
    for (size_t i = 0; i < each; ++i) {
        const int32_t number = job.frames_of_rows[static_cast<size_t>(row) * each + i];
        if (number >= 0) frames[i] = job.frames[static_cast<size_t>(number)].get();
    }
    return maker.compose(*job.composer, frames, job.pasted, static_cast<size_t>(row),
                         {job.key(row), job.place(row)});
}

// False when the pool is closed.
bool Pool::State::goes_to_pillow(ReadyRow& row) {
    StateLock lock(*this);
    if (closed) return false;
    foreign.insert(row.job->first ? foreign.begin() : foreign.end(),
                   {row.job, row.turn, std::move(row.read.buffer), row.read.size, row.read.stamp, row.stale});
    return true;
}

bool Pool::State::run_row(RowMaker& maker, ReadyRow& row) noexcept {
    Outcome outcome;
    try {
        outcome = make_row(maker, row);
        if (outcome.kind == Outcome::Kind::foreign) {
            if (goes_to_pillow(row)) return false;
            outcome.kind = Outcome::Kind::cancelled;
        }
    } catch (const std::bad_alloc&) {
        outcome = Outcome::no_memory();
    }
    const bool ended = outcome.kind != Outcome::Kind::cancelled;
    finish(*row.job, row.turn, std::move(outcome));
    return ended;
}

void Pool::State::decode_loop(Heartbeat& heartbeat) {
    const HeapPin pin;
    RowMaker maker(side);
    StateLock lock(*this);
    heartbeat.sit_down();
    for (;;) {
        make_way(lock);
        if (!decoder_has_work()) {
            const auto start = Clock::now();
            lock.wait(decoders, [this] { return decoder_has_work(); });
            stats.decode_wait_s += seconds(Clock::now() - start);
            continue;
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
        const bool reads = !was_read && row.job->reads_files(row.turn.input);
        begin(heartbeat, row.job, row.turn.row, reads ? Phase::reading : Phase::decoding);
        lock.unlock();
        Clock::duration read_time{};
        if (reads && !row.job->cancelled) {
            read(row);
            read_time = heartbeat.worked();
            lock.lock();
            note_read(read_time, row);
            heartbeat.busy += read_time;
            lock.unlock();
            heartbeat.phase = Phase::decoding;
        }
        bool ended = false;
        if (!row.job->cancelled) ended = run_row(maker, row);
        else finish(*row.job, row.turn, {Outcome::Kind::cancelled, false, {}});
        const auto took = heartbeat.worked() - read_time;
        row = {};
        lock.lock();
        heartbeat.job.reset();
        note_row(heartbeat, took, ended);
        if (heartbeat.given_up) return;
    }
}

}  // namespace standpipe
