#include "helpers.h"

#include <system_error>
#include <thread>
#include <utility>

#include "signals.h"

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
        } catch (const std::system_error&) {
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
    std::deque<std::function<void()>> dropped;
    std::unique_lock lock(mutex_);
    closed_ = true;
    dropped.swap(errands_);
    changed_.notify_all();
    const bool all_ended = ended_.wait_for(lock, patience, [this] { return alive_ == 0; });
    lock.unlock();
    return all_ended;
}

}  // namespace standpipe
