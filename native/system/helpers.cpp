#include "system/helpers.h"

#include <exception>
#include <thread>
#include <utility>

#include "system/signals.h"

namespace standpipe {

bool Helpers::run(std::function<void()> errand) {
    std::scoped_lock lock(mutex_);
    if (closed_) return false;
    if (static_cast<int>(errands_.size()) >= idle_ && alive_ < most_) {
        try {
            const SignalsBlocked blocked;
            // Threads own what they need, so that one stuck in a system call can outlive the others.
            std::thread([self = shared_from_this()] { self->work(); }).detach();
            ++alive_;
        } catch (const std::exception&) {  // the system refuses a thread, or memory for one
            if (alive_ == 0) return false;
        }
    }
    errands_.push_back(std::move(errand));
    changed_.notify_one();
    return true;
}

void Helpers::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        ++idle_;
        changed_.wait(lock, [this] { return closed_ || !errands_.empty(); });
        --idle_;
        if (closed_) break;
        std::function<void()> errand = std::move(errands_.front());
        errands_.pop_front();
        lock.unlock();
        errand();
        errand = nullptr;
        lock.lock();
    }
    --alive_;
    ended_.notify_all();
}

bool Helpers::close(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    closed_ = true;
    while (!errands_.empty()) {
        std::function<void()> dropped = std::move(errands_.front());
        errands_.pop_front();
        lock.unlock();
        dropped = nullptr;
        lock.lock();
    }
    changed_.notify_all();
    return ended_.wait_for(lock, patience, [this] { return alive_ == 0; });
}

}  // namespace standpipe
