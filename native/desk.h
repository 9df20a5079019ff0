// What a thread of a loader is at, for whoever asks why it takes so long.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

namespace penstock {

struct Job;

enum class Phase : uint8_t { reading, waiting, decoding };

// One for every thread, which writes `phase` and `waited` as it goes; the rest changes under the pool's lock.
struct Desk {
    using Clock = std::chrono::steady_clock;
    enum class Kind : uint8_t { decoder, reader, pillow };

    Desk(Kind k, int n) : kind(k), number(n) {}

    const Kind kind;
    const int number;      // among its pool's
    pid_t system_id = 0;   // of its thread, as /proc names it
    pthread_t thread = 0;  // and as pthreads do

    std::shared_ptr<Job> job;  // null: it waits for work
    int row = 0;
    uint64_t rows_begun = 0;  // tells one row from the next
    Clock::time_point begin;
    bool given_up = false;  // another thread has taken its place: it ends when it comes back

    std::atomic<Phase> phase{Phase::decoding};
    std::atomic<Clock::duration> waited{};  // of the time since `begin`, for what other rows hold

    // The calling thread's from now on.
    void sit_down() noexcept {
        system_id = gettid();
        thread = pthread_self();
        mine() = this;
    }

    // The calling thread's; null for a thread of no pool.
    static Desk*& mine() noexcept {
        thread_local Desk* desk = nullptr;
        return desk;
    }
};

// While it lives, the calling thread's row waits for what others hold, which isn't its own slowness.
class Waiting {
  public:
    Waiting() noexcept : desk_(Desk::mine()) {
        if (desk_) before_ = desk_->phase.exchange(Phase::waiting);
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    ~Waiting() {
        if (!desk_) return;
        desk_->waited = desk_->waited.load() + (Desk::Clock::now() - start_);
        desk_->phase = before_;
    }

  private:
    Desk* const desk_;
    const Desk::Clock::time_point start_ = Desk::Clock::now();
    Phase before_ = Phase::decoding;
};

}  // namespace penstock
