// Helper threads that run tasks for other threads.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>

namespace standpipe {

// Runs tasks in at most `most` threads. A thread starts when there is a task and all others are busy, and
// lives until close().
class Helpers : public std::enable_shared_from_this<Helpers> {
  public:
    explicit Helpers(int most) : most_(most) {}

    // Runs a task in another thread, now or when one is free. Returns false if there is none, or this is
    // closed.
    bool run(std::function<void()> own_task);
    // Drops tasks that no thread has begun. Returns false if a thread is still busy after `patience`: it ends
    // when its task does.
    bool close(std::chrono::milliseconds patience);

  private:
    void work();

    const int most_;
    std::mutex mutex_;
    std::condition_variable changed_, ended_;
    std::list<std::function<void()>> own_tasks_;  // an empty one has no memory, so closing never fails
    int alive_ = 0, idle_ = 0;
    bool closed_ = false;
};

}  // namespace standpipe
