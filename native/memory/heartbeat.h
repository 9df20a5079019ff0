// Heartbeats: each thread of a loader records what it is doing, so that slow work can be reported.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

namespace standpipe {

struct Job;

enum class Phase : uint8_t { reading, waiting, decoding };

// The heartbeat of one thread. The thread writes `phase` and `waited` itself; the rest changes under the
// pool's lock.
struct Heartbeat {
    using Clock = std::chrono::steady_clock;
    enum class Kind : uint8_t { decoder, reader, pillow };  // the last one is a thread of Python's

    Heartbeat(Kind k, int n) : kind(k), number(n) {}

    const Kind kind;
    const int number;      // among its pool's
    pid_t system_id = 0;   // of its thread, as /proc names it
    pthread_t thread = 0;  // and as pthreads do

    std::shared_ptr<Job> job;  // null: it waits for work
    int row = 0;
    uint64_t rows_begun = 0;  // tells one row from the next
    Clock::time_point begin;
    bool given_up = false;  // another thread has taken its place: it ends when it comes back
    uint64_t rows_ended = 0;
    Clock::duration busy{};  // time with rows, without waits for other rows

    std::atomic<Phase> phase{Phase::decoding};
    std::atomic<Clock::duration> waited{};  // of the time since `begin`, for what other rows hold

    // Returns how long the thread has worked on its row so far, without waits for other rows.
    Clock::duration worked() const noexcept { return Clock::now() - begin - waited.load(); }

    // Makes this the heartbeat of the calling thread.
    void sit_down() noexcept {
        system_id = gettid();
        thread = pthread_self();
        mine() = this;
    }

    // Returns the calling thread's heartbeat; null if it belongs to no pool.
    static Heartbeat*& mine() noexcept {
        thread_local Heartbeat* heartbeat = nullptr;
        return heartbeat;
    }
};

// The heartbeat of a Python worker, which writes it itself: the first words that engine/watchdog/board.py
// describes.
struct Words {
    static constexpr int64_t kForMemory = 1 << 21;

    int64_t piece, row, step, since_ns;

    // Returns the heartbeat of the calling thread while it is inside a call of a Python worker; else null.
    static Words*& mine() noexcept {
        thread_local Words* words = nullptr;
        return words;
    }
};

// While it lives, the calling thread's row waits for other rows or a disk, so the row itself isn't slow.
class Waiting {
  public:
    Waiting() noexcept : heartbeat_(Heartbeat::mine()), words_(Words::mine()) {
        if (heartbeat_) before_ = heartbeat_->phase.exchange(Phase::waiting);
        if (words_) std::atomic_ref(words_->step) += Words::kForMemory;
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    ~Waiting() {
        const auto waited = Heartbeat::Clock::now() - start_;
        if (heartbeat_) {
            heartbeat_->waited = heartbeat_->waited.load() + waited;
            heartbeat_->phase = before_;
        }
        if (words_) {
            std::atomic_ref(words_->since_ns) += std::chrono::nanoseconds(waited).count();
            std::atomic_ref(words_->step) -= Words::kForMemory;
        }
    }

  private:
    Heartbeat* const heartbeat_;
    Words* const words_;
    const Heartbeat::Clock::time_point start_ = Heartbeat::Clock::now();
    Phase before_ = Phase::decoding;
};

}  // namespace standpipe
