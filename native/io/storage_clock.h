// Measures the time of system calls, and how much of it storage made the thread wait.
#pragma once

#include <sys/resource.h>

#include <chrono>

namespace standpipe {

// Times what the system does, and tells waiting for storage from being preempted: a thread that blocks gives
// up its core by itself.
class StorageClock {
  public:
    void start() noexcept {
        switches_ = voluntary_switches();
        begin_ = Clock::now();
    }
    void stop() noexcept {
        const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
        took_s_ += seconds;
        if (voluntary_switches() != switches_) blocked_s_ += seconds;
    }
    double took_s() const noexcept { return took_s_; }
    double blocked_s() const noexcept { return blocked_s_; }

  private:
    using Clock = std::chrono::steady_clock;

    static long voluntary_switches() noexcept {
        struct rusage usage;
        return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nvcsw : 0;
    }

    long switches_ = 0;
    Clock::time_point begin_;
    double took_s_ = 0, blocked_s_ = 0;
};

}  // namespace standpipe
