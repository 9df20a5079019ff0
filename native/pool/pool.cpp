#include "pool/pool.h"

#include <algorithm>
#include <chrono>
#include <tuple>
#include <utility>

#include "pool/state.h"

namespace standpipe {

Pool::Pool(const PoolOptions& options, std::shared_ptr<Bell> bell)
    : state_(std::make_shared<State>(options, std::move(bell))) {
    StateLock lock(*state_);
    try {
        for (int i = 0; i < options.workers; ++i) state_->start(Heartbeat::Kind::decoder);
    } catch (...) {
        state_->closed = true;
        throw;
    }
}

Pool::~Pool() { close(std::chrono::milliseconds(0)); }

void Job::sort_turns() {
    const auto is_part = [this](const Turn& turn) {
        return reads_files(turn.input) && files(turn.input).is_part(turn.row);
    };
    std::vector<Turn> order;
    for (int number = 0; program && number < all_turns(); ++number) order.push_back(turn_at(number));
    if (std::ranges::none_of(order, is_part)) return;
    std::ranges::sort(order, {}, [this](const Turn& turn) {
        if (!reads_files(turn.input)) return std::tuple(std::string_view(), int64_t{0}, turn.row);
        const FileInput& from = files(turn.input);
        return std::tuple(from.path(turn.row), from.offset[turn.row], turn.row);
    });
    turns = std::move(order);
}

bool Job::are_neighbours(const Turn& turn, const Turn& next) const noexcept {
    for (const int number : {turn.input, next.input})
        if (!reads_files(number) || has_cache(number)) return false;
    const FileInput &here = files(turn.input), &there = files(next.input);
    if (!here.is_part(turn.row) || !there.is_part(next.row)) return false;
    const int64_t between = there.offset[next.row] - here.stop(turn.row);
    return between >= 0 && between <= kMostBetween && here.path(turn.row) == there.path(next.row);
}

std::vector<Failure> Job::bad_rows() {
    std::scoped_lock lock(mutex);
    std::vector<Failure> bad;
    for (int input = 1; !sizes.empty() && input < static_cast<int>(inputs.size()); ++input)
        for (int row = 0; row < rows; ++row) {
            std::string text =
                other_size(*program, static_cast<size_t>(input), size_of({row, input}), size_of({row, 0}));
            if (!text.empty()) bad.push_back({row, input, Outcome::decode_error(std::move(text))});
        }
    const auto row_of = [](const Failure& failure) { return failure.row; };
    bad.insert(bad.end(), failures.begin(), failures.end());
    std::ranges::stable_sort(bad, {},
                             [](const Failure& failure) { return std::tuple(failure.row, failure.input); });
    const auto rest = std::ranges::unique(bad, {}, row_of);
    bad.erase(rest.begin(), rest.end());
    return bad;
}

void Pool::submit(std::shared_ptr<Job> job, bool first) {
    job->sort_turns();
    job->first = first;
    job->remaining = job->all_turns();
    job->failures.reserve(static_cast<size_t>(job->all_turns()));
    if (job->inputs.size() > 1) job->sizes.assign(static_cast<size_t>(job->all_turns()), {});
    StateLock lock(*state_);
    std::deque<std::shared_ptr<Job>>& unread = state_->unread;
    unread.insert(first ? unread.begin() : unread.end(), std::move(job));
}

void Pool::employ(int workers) {
    StateLock lock(*state_);
    state_->employed = std::clamp(workers, 1, state_->options.workers);
}

void Pool::cancel(const std::shared_ptr<Job>& job) { job->cancelled = true; }

std::optional<Broken> Pool::broken() const {
    std::scoped_lock lock(state_->mutex);
    if (!state_->broken) return std::nullopt;
    return Broken{state_->broken->kind, state_->broken->number, state_->broken_by.data()};
}

std::vector<AtWork> Pool::at_work() const {
    std::scoped_lock lock(state_->mutex);
    std::vector<AtWork> found;
    for (const auto& heartbeat : state_->heartbeats) {
        if (!heartbeat->job || heartbeat->given_up) continue;
        const std::chrono::duration<double> begin =
            (heartbeat->begin + heartbeat->waited.load()).time_since_epoch();
        found.push_back({heartbeat->kind, heartbeat->number, heartbeat->system_id, heartbeat->thread,
                         heartbeat->job, heartbeat->row, heartbeat->rows_begun, heartbeat->phase,
                         begin.count()});
    }
    return found;
}

bool Pool::give_up(const AtWork& row) {
    State& s = *state_;
    StateLock lock(s);
    Heartbeat& heartbeat = *s.heartbeats.at(static_cast<size_t>(row.number));
    if (s.closed || heartbeat.given_up || !heartbeat.job || heartbeat.rows_begun != row.rows_begun)
        return false;
    if (heartbeat.kind != Heartbeat::Kind::pillow) s.start(heartbeat.kind);
    heartbeat.given_up = true;
    heartbeat.job->cancelled = true;
    if (heartbeat.kind == Heartbeat::Kind::reader) --s.reading;
    if (heartbeat.kind == Heartbeat::Kind::decoder) --s.on_duty;
    return true;
}

bool Pool::close(std::chrono::milliseconds patience) {
    State& s = *state_;
    const auto ends = std::chrono::steady_clock::now() + patience;
    StateLock lock(s);
    s.closed = true;
    // Rows in flight finish; what nobody has begun is dropped with its buffers.
    s.unread.clear();
    s.ready.clear();
    s.foreign.clear();
    lock.unlock();
    s.side.close();
    s.buffers->close();
    s.reader->close(std::chrono::milliseconds(0));
    lock.lock();
    const bool all_ended = lock.wait_for_end(ends);
    lock.unlock();
    // Its own threads write into no slot: nothing has to be kept for one that is stuck.
    s.reader->close(
        std::chrono::duration_cast<std::chrono::milliseconds>(ends - std::chrono::steady_clock::now()));
    return all_ended;
}

PoolStats Pool::stats() const {
    std::scoped_lock lock(state_->mutex);
    PoolStats stats = state_->stats;
    {
        std::scoped_lock counting(state_->counting);
        const RowCounts& counts = state_->counts;
        stats.rows = counts.made;
        stats.damaged = counts.damaged;
        stats.truncated = counts.truncated;
        stats.redecoded = counts.redecoded;
        stats.foreign = counts.foreign;
    }
    for (const auto& heartbeat : state_->heartbeats)
        stats.threads.push_back({heartbeat->kind, heartbeat->number, heartbeat->rows_ended,
                                 std::chrono::duration<double>(heartbeat->busy).count()});
    stats.decoders = state_->employed;
    stats.readers = state_->ahead ? state_->num_readers : 0;
    stats.side_bytes = state_->side.used();
    stats.side_peak_bytes = state_->side.peak();
    stats.read_ahead_bytes = state_->buffers->total();
    stats.read_ahead_peak_bytes = state_->buffers->peak();
    stats.reading_ahead = state_->ahead;
    const ReadStats reads = state_->reader->stats();
    stats.retries = reads.retries;
    stats.hedged = reads.hedged;
    stats.slowest_read_s = reads.slowest_s;
    stats.opens = reads.opens;
    stats.ranges = reads.ranges;
    return stats;
}

}  // namespace standpipe
