// The threads that read ahead of decoding while storage is slow.
#include <array>
#include <chrono>
#include <exception>
#include <new>
#include <span>
#include <utility>

#include "pool/state.h"

namespace standpipe {

size_t Pool::State::take_neighbours(std::span<ReadyRow> out) {
    if (!take_unread(out.front())) return 0;
    const Job& job = *out.front().job;
    const Turn first = out.front().turn;
    size_t count = 1;
    while (count < out.size() && job.next_turn < job.all_turns()) {
        const Turn next = job.turn_at(job.next_turn);
        if (!job.are_neighbours(out[count - 1].turn, next)) break;
        if (job.files(next.input).stop(next.row) - job.files(first.input).offset[first.row] >
            kMostBytesTogether)
            break;
        take_unread(out[count++]);
    }
    return count;
}

// Of a single row a cache is asked first.
size_t Pool::State::read_some(std::span<ReadyRow> rows, bool& one_by_one) {
    if (rows.size() > 1 && !one_by_one) {
        try {
            std::array<FileRange, kMostTogether> ranges;
            std::array<ReadResult, kMostTogether> results;
            for (size_t i = 0; i < rows.size(); ++i) ranges[i] = range_of(rows[i]);
            const size_t count =
                reader->read_together(std::span(ranges).first(rows.size()), *buffers, results);
            for (size_t i = 0; i < count; ++i) rows[i].read = std::move(results[i]);
            if (count > 0) return count;
        } catch (const std::bad_alloc&) {
            // One by one they need less.
        }
        one_by_one = true;
    }
    read(rows.front());
    return 1;
}

void Pool::State::hand_on(StateLock& lock, ReadyRow row) noexcept {
    try {
        ready.push_back(std::move(row));  // or the row is as it was
    } catch (const std::bad_alloc&) {
        lock.unlock();
        finish(*row.job, row.turn, Outcome::no_memory());
        row = {};
        lock.lock();
    }
}

void Pool::State::read_loop(Heartbeat& heartbeat) {
    std::array<ReadyRow, kMostTogether> taken;
    StateLock lock(*this);
    heartbeat.sit_down();
    for (;;) {
        if (!reader_has_work()) {
            const auto start = Heartbeat::Clock::now();
            lock.wait(readers, [this] { return reader_has_work(); });
            const std::chrono::duration<double> waited = Heartbeat::Clock::now() - start;
            if (ahead) stats.read_wait_s += waited.count();
        }
        const size_t count = closed ? 0 : take_neighbours(taken);
        if (count == 0) return;
        ++reading;
        read_and_hand_on(lock, heartbeat, std::span(taken).first(count));
        heartbeat.job.reset();
        if (heartbeat.given_up) return;
        --reading;
    }
}

// Passes on the rows that were read before it waits for the next buffer. Else all reading threads could hold
// some buffers and wait for more.
void Pool::State::read_and_hand_on(StateLock& lock, Heartbeat& heartbeat, std::span<ReadyRow> rows) {
    bool one_by_one = false;
    while (!rows.empty()) {
        begin(heartbeat, rows.front().job, rows.front().turn.row, Phase::reading);
        lock.unlock();
        const bool wanted = !rows.front().job->cancelled;
        const size_t count = wanted ? read_some(rows, one_by_one) : rows.size();
        const auto took = heartbeat.worked();
        lock.lock();
        heartbeat.busy += took;
        for (ReadyRow& row : rows.first(count)) {
            if (wanted) note_read(took / static_cast<int>(count), row);
            heartbeat.rows_ended += wanted;
            hand_on(lock, std::move(row));
            row = {};
        }
        rows = rows.subspan(count);
    }
}

void Pool::State::start_readers() {
    try {
        for (; num_readers < options.io_threads; ++num_readers) start(Heartbeat::Kind::reader);
    } catch (const std::exception&) {  // the system refuses threads, or memory for them
        // Fewer will do, and without any the decoding threads go on reading.
    }
}

}  // namespace standpipe
