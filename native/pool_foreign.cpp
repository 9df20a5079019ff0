// Rows that are no JPEG: Python threads take them, decode a frame and give its pixels back.
#include <string>
#include <utility>

#include "pool_state.h"

namespace penstock {

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

}  // namespace penstock
