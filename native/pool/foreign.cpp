// Rows for Pillow: all but usual JPEGs. Python threads take them, decode a frame and give its pixels back.
#include <algorithm>
#include <string>
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
            s.begin(*heartbeat, out.job, out.row, Phase::decoding);
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

std::string Pool::reserve_for(ForeignRow& row, Size size, uint64_t frame_bytes) {
    SideArena& side = state_->side;
    SideArena none(0);
    const Job& job = *row.job;
    uint64_t bytes = 0;
    std::string text = RowMaker(none).bytes_from_pixels(
        job.keeps_images() ? *job.cache->before : *job.program, size, job.key(row.row), bytes);
    if (!text.empty()) return text;
    if (job.keeps_images()) {
        uint64_t more = 0;
        text = RowMaker(none).bytes_from_pixels(*job.program, job.cache->size(), job.key(row.row), more);
        if (!text.empty()) return text;
        bytes += more + job.cache->before->format().row_bytes();
    }
    bytes += frame_bytes + state_->uncounted(row.bytes);
    if (bytes > side.cap()) return over_side_cap(bytes, side.cap());
    if (!side.acquire(bytes)) return "the loader was closed";
    row.reserved = bytes;
    return {};
}

void Pool::finish_foreign(ForeignRow& row, const uint8_t* pixels, Size size, bool truncated) {
    Job& job = *row.job;
    row.bytes.reset();
    // Of what was reserved: waiting for the shared arena while holding a part of it could wait for ever.
    SideArena own(row.reserved);
    RowMaker maker(own);
    const auto make = [&](const Program& program, const RowPlace& out) {
        Outcome outcome = maker.from_pixels(program, pixels, size, job.key(row.row), out);
        outcome.truncated = truncated && outcome.kind == Outcome::Kind::ok;
        return outcome;
    };
    Outcome outcome = job.keeps_images() ? made_and_kept(maker, job, row.row, row.stamp, row.stale, make)
                                         : make(*job.program, job.place(row.row));
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
    Heartbeat* const heartbeat = Heartbeat::mine();
    const bool began = heartbeat && heartbeat->job;  // else it was given up before
    outcome.by_pillow = true;
    state_->finish(*row.job, row.row, std::move(outcome));
    StateLock lock(*state_);
    if (began) state_->note_row(*heartbeat, heartbeat->worked(), true);
    if (heartbeat) heartbeat->job.reset();
}

}  // namespace standpipe
