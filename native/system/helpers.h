// Helper threads that run tasks for other threads.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace standpipe {

// At most `most` threads, started when there is an own_task and all others are busy, and kept until they are
// closed.
class Helpers : public std::enable_shared_from_this<Helpers> {
  public:
    explicit Helpers(int most) : most_(most) {}

    // Does it in another thread, or when one is free. False when there is none, or they are closed.
    bool run(std::function<void()> own_task);
    // Drops own_tasks that nobody has begun. False when some thread was still busy after `patience`: it ends
    // when its own_task does.
    bool close(std::chrono::milliseconds patience);

  private:
    void work();

    const int most_;
    std::mutex mutex_;
    std::condition_variable changed_, ended_;
    std::deque<std::function<void()>> own_tasks_;
    int alive_ = 0, idle_ = 0;
    bool closed_ = false;
};

}  // namespace standpipe
