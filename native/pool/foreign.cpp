// Rows for Pillow: all but usual JPEGs. Python threads take them, decode a frame and give its pixels back.
#include <algorithm>
#include <new>
#include <utility>

#include "pool/cache.h"

namespace standpipe {

bool Pool::take_foreign(ForeignRow& out) {
    State& s = *state_;
    StateLock lock(s);
    if (!Heartbeat::mine()) {
        s.heartbeats.push_back(s.new_heartbeat(Heartbeat::Kind::pillow));
        s.heartbeats.back()->sit_down();
    }
    Heartbeat* const heartbeat = Heartbeat::mine();
    for (;;) {
        if (!heartbeat->given_up) lock.wait(s.foreigners, [&] { return s.pillow_has_work(); });
        if (s.closed || heartbeat->given_up) {
            Heartbeat::mine() = nullptr;
            return false;
        }
        out = std::move(s.foreign.front());
        s.foreign.pop_front();
        if (!out.job->cancelled) {
            s.begin(*heartbeat, out.job, out.turn.row, Phase::decoding);
            return true;
        }
        lock.unlock();
        out.bytes.reset();
        end_foreign(out, {Outcome::Kind::cancelled, false, {}});
        lock.lock();
    }
}

int Pool::State::pillows_at_work() const noexcept {
    return static_cast<int>(std::ranges::count_if(heartbeats, [](const auto& heartbeat) {
        return heartbeat->kind == Heartbeat::Kind::pillow && heartbeat->job && !heartbeat->given_up;
    }));
}

int Pool::foreign_waiting() const {
    std::scoped_lock lock(state_->mutex);
    return static_cast<int>(state_->foreign.size());
}

void Pool::make_foreign(ForeignRow& row, Fallback& pillow) {
    Job& job = *row.job;
    const Turn turn = row.turn;
    RowMaker maker(state_->side);
    const uint64_t beside = job.keeps_images() ? job.cache->before->format().row_bytes() : 0;
    const auto make = [&](const Program& program, const RowPlace& out) {
        const Encoded data{{row.bytes.data(), row.size}, state_->uncounted(row.bytes)};
        return maker.make(program, static_cast<size_t>(turn.input), data,
                          {job.key(turn.row), out, job.wanted(turn), beside}, &pillow);
    };
    Outcome outcome;
    try {
        outcome = job.keeps_images() ? made_and_kept(maker, job, turn.row, row.stamp, row.stale, make)
                                     : make(*job.program, job.place(turn.row));
    } catch (const std::bad_alloc&) {
        outcome = Outcome::no_memory();
    }
    row.bytes.reset();
    end_foreign(row, std::move(outcome));
}

void Pool::end_foreign(ForeignRow& row, Outcome outcome) {
    Heartbeat* const heartbeat = Heartbeat::mine();
    const bool began = heartbeat && heartbeat->job;  // else it was given up before
    outcome.by_pillow = true;
    state_->finish(*row.job, row.turn, std::move(outcome));
    StateLock lock(*state_);
    if (began) state_->note_row(*heartbeat, heartbeat->worked(), true);
    if (heartbeat) heartbeat->job.reset();
}

}  // namespace standpipe
