// Rows for the GPU's decoder: a Python thread takes them, has them decoded, and gives their frames back.
#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "pool/state.h"

namespace standpipe {

// Lends frames. They come back to room that new_frames() has reserved.
Frames Pool::State::lend_frames() {
    struct Lent {
        std::unique_ptr<uint8_t[]> memory;
        std::weak_ptr<State> state;
        ~Lent() {
            const auto pool = state.lock();
            if (!pool || !memory) return;
            StateLock lock(*pool);
            pool->idle_frames.push_back(std::move(memory));
        }
    };
    auto lent = std::make_shared<Lent>();
    lent->state = weak_from_this();
    lent->memory = std::move(idle_frames.back());
    idle_frames.pop_back();
    uint8_t* const first = lent->memory.get();
    return {std::move(lent), first};
}

// Makes a row in the calling thread, which isn't one of the decoding threads. Holds the lock before and
// after.
void Pool::State::make_one(StateLock& lock, Heartbeat& heartbeat, ReadyRow row) {
    begin(heartbeat, row.job, row.row, Phase::decoding);
    lock.unlock();
    const bool wanted = !row.job->cancelled;
    Outcome outcome{Outcome::Kind::cancelled, false, {}};
    try {
        RowMaker maker(side);
        if (wanted) outcome = make_row(maker, row);
    } catch (const std::bad_alloc&) {
        outcome = Outcome::no_memory();
    }
    finish(*row.job, row.row, std::move(outcome));
    const auto took = heartbeat.worked();
    row = {};
    lock.lock();
    heartbeat.job.reset();
    note_row(heartbeat, took, wanted);
}

bool Pool::State::gpu_has_work() const noexcept {
    return closed ||
           (!for_gpu.empty() && (!idle_frames.empty() ||
                                 std::ranges::any_of(ready, [](const ReadyRow& row) { return row.rgb; })));
}

// Frames that wait to become rows are made here where none are left to decode into: the decoding threads may
// all wait for buffers that rows for the GPU hold.
bool Pool::take_for_gpu(GpuBatch& out) {
    State& s = *state_;
    StateLock lock(s);
    if (!Heartbeat::mine()) {
        s.heartbeats.push_back(s.new_heartbeat(Heartbeat::Kind::gpu));
        s.heartbeats.back()->sit_down();
    }
    Heartbeat* const heartbeat = Heartbeat::mine();
    for (;;) {
        if (!heartbeat->given_up) lock.wait(s.gpus, [&] { return s.gpu_has_work(); });
        if (s.closed || heartbeat->given_up) {
            Heartbeat::mine() = nullptr;
            return false;
        }
        if (s.for_gpu.front().job->cancelled) {
            GpuRow dropped = std::move(s.for_gpu.front());
            s.for_gpu.pop_front();
            lock.unlock();
            dropped.bytes.reset();
            s.finish(*dropped.job, dropped.row, {Outcome::Kind::cancelled, false, {}});
            lock.lock();
        } else if (s.idle_frames.empty()) {
            const auto first = std::ranges::find_if(s.ready, &ReadyRow::rgb);
            ReadyRow row = std::move(*first);
            s.ready.erase(first);
            s.make_one(lock, *heartbeat, std::move(row));
        } else {
            break;
        }
    }
    out.frames = s.lend_frames();
    const std::shared_ptr<Job> job = s.for_gpu.front().job;
    size_t used = 0;
    for (; !s.for_gpu.empty(); s.for_gpu.pop_front()) {
        GpuRow& row = s.for_gpu.front();
        if (row.job != job || used + row.frame_bytes() > s.options.frame_bytes) break;
        out.offset.push_back(used);
        used += row.frame_bytes();
        out.rows.push_back(std::move(row));
    }
    s.stats.frame_bytes = std::max<uint64_t>(s.stats.frame_bytes, 2 * used);
    s.begin(*heartbeat, job, out.rows.front().row, Phase::decoding);
    return true;
}

void Pool::hand_back(GpuBatch& batch, const std::vector<bool>& decoded) {
    State& s = *state_;
    std::vector<ReadyRow> done, refused;
    done.reserve(batch.rows.size());
    refused.reserve(batch.rows.size());
    for (size_t i = 0; i < batch.rows.size(); ++i) {
        GpuRow& row = batch.rows[i];
        ReadyRow& ready = (decoded[i] ? done : refused).emplace_back();
        ready.job = std::move(row.job);
        ready.row = row.row;
        if (decoded[i]) {
            row.bytes.reset();
            ready.frames = batch.frames;
            ready.rgb = batch.frames.get() + batch.offset[i];
            ready.size = row.size;
        } else {
            ready.read.buffer = std::move(row.bytes);
            ready.read.size = row.encoded;
        }
    }
    batch.rows.clear();
    batch.frames.reset();
    StateLock lock(s);
    Heartbeat* const heartbeat = Heartbeat::mine();
    heartbeat->job.reset();
    if (s.closed) return;
    for (ReadyRow& row : done) s.ready.push_back(std::move(row));
    // Here and now: the decoding threads may wait for the buffers that these hold.
    for (ReadyRow& row : refused) {
        ++s.stats.gpu_refused;
        s.make_one(lock, *heartbeat, std::move(row));
    }
}

void Pool::fail(GpuBatch& batch, const std::string& text) {
    State& s = *state_;
    for (GpuRow& row : batch.rows) {
        row.bytes.reset();
        s.finish(*row.job, row.row, Outcome::decode_error(text));
    }
    batch.rows.clear();
    batch.frames.reset();
    StateLock lock(s);
    Heartbeat::mine()->job.reset();
}

}  // namespace standpipe
