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

// One for every thread, which writes `phase` and `waited` as it goes; the rest changes under the pool's lock.
struct Heartbeat {
    using Clock = std::chrono::steady_clock;
    enum class Kind : uint8_t { decoder, reader, pillow, gpu };  // the last two are threads of Python's

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
    Clock::duration busy{};  // with rows, without waiting for what others hold

    std::atomic<Phase> phase{Phase::decoding};
    std::atomic<Clock::duration> waited{};  // of the time since `begin`, for what other rows hold

    // How long its thread is at the row by now, without waiting for what others hold.
    Clock::duration worked() const noexcept { return Clock::now() - begin - waited.load(); }

    // The calling thread's from now on.
    void sit_down() noexcept {
        system_id = gettid();
        thread = pthread_self();
        mine() = this;
    }

    // The calling thread's; null for a thread of no pool.
    static Heartbeat*& mine() noexcept {
        thread_local Heartbeat* heartbeat = nullptr;
        return heartbeat;
    }
};

// The same of a worker in Python, which writes it down itself: the words that engine/watchdog/board.py
// describes.
struct Words {
    static constexpr int64_t kForMemory = 1 << 21;

    int64_t piece, row, step, since_ns;

    // The calling thread's, while it is inside a call of a worker in Python; else null.
    static Words*& mine() noexcept {
        thread_local Words* words = nullptr;
        return words;
    }
};

// While it lives, the calling thread's row waits for what others hold, which isn't its own slowness.
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
