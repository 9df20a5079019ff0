#include "system/helpers.h"

#include <exception>
#include <thread>
#include <utility>

#include "system/signals.h"

namespace standpipe {

bool Helpers::run(std::function<void()> own_task) {
    std::scoped_lock lock(mutex_);
    if (closed_) return false;
    if (static_cast<int>(own_tasks_.size()) >= idle_ && alive_ < most_) {
        try {
            const SignalsBlocked blocked;
            // Threads own what they need, so that one stuck in a system call can outlive the others.
            std::thread([self = shared_from_this()] { self->work(); }).detach();
            ++alive_;
        } catch (const std::exception&) {  // the system refuses a thread, or memory for one
            if (alive_ == 0) return false;
        }
    }
    own_tasks_.push_back(std::move(own_task));
    changed_.notify_one();
    return true;
}

void Helpers::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        ++idle_;
        changed_.wait(lock, [this] { return closed_ || !own_tasks_.empty(); });
        --idle_;
        if (closed_) break;
        std::function<void()> own_task = std::move(own_tasks_.front());
        own_tasks_.pop_front();
        lock.unlock();
        own_task();
        own_task = nullptr;
        lock.lock();
    }
    --alive_;
    ended_.notify_all();
}

bool Helpers::close(std::chrono::milliseconds patience) {
    std::list<std::function<void()>> dropped;  // without the lock, as they may take it
    {
        std::scoped_lock lock(mutex_);
        closed_ = true;
        dropped.swap(own_tasks_);
    }
    dropped.clear();
    changed_.notify_all();
    std::unique_lock lock(mutex_);
    return ended_.wait_for(lock, patience, [this] { return alive_ == 0; });
}

}  // namespace standpipe
