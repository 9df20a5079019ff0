#include "io/race.h"

#include <algorithm>
#include <new>

#include "memory/heartbeat.h"
#include "memory/no_memory.h"

namespace standpipe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLongest_s = 1e6;  // of a time that a clock's number holds

Clock::duration seconds(double number) {
    return std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(std::min(number, kLongest_s)));
}

// Of one of the reads in a race.
class InRace final : public Terms {
  public:
    InRace(Race& race, bool is_second) : race_(race), is_second_(is_second) {}

    // An empty one when the race is over: then there is nothing to read any more.
    Buffer lend(size_t bytes) override {
        Buffer buffer;
        if (is_over()) return buffer;
        buffer = is_second_ ? race_.buffers->lend(bytes) : lend_first(bytes);
        if (is_over()) buffer.reset();
        return buffer;
    }

    bool pause(double time_s) override {
        std::unique_lock lock(race_.mutex);
        return !race_.changed.wait_for(lock, seconds(time_s), [this] { return race_.over; });
    }

    bool is_over() const {
        std::scoped_lock lock(race_.mutex);
        return race_.over;
    }

  private:
    Buffer lend_first(size_t bytes) {
        Buffer buffer = race_.buffers->lend_now(bytes);
        if (buffer.data()) return buffer;
        say_that_it_waits(true);
        buffer = race_.buffers->lend(bytes);
        say_that_it_waits(false);
        return buffer;
    }

    void say_that_it_waits(bool waits) {
        std::scoped_lock lock(race_.mutex);
        race_.waits = waits;
        race_.changed.notify_all();
    }

    Race& race_;
    const bool is_second_;
};

}  // namespace

// A second read begins when the first is in the system's hands for too long; what it waits for buffers that
// others hold doesn't count. Nothing when the system has no thread for it.
std::optional<ReadResult> Reader::raced(const FileRange& range) {
    const auto race = std::make_shared<Race>(range, hedged_buffers_);
    {
        std::scoped_lock lock(mutex_);
        if (closed_) return closed_result();
        races_.insert(race.get());
    }
    struct Leaves {  // however it ends
        Reader& reader;
        Race& race;
        ~Leaves() {
            std::scoped_lock own(reader.mutex_);
            reader.races_.erase(&race);
        }
    } const leaves{*this, *race};
    std::unique_lock lock(race->mutex);
    const auto has_news = [&] { return race->over || race->waits; };
    auto deadline = Clock::now() + seconds(policy_.hedge_after_s);
    bool has_second = false;
    const bool has_first = enter(race, false);
    while (has_first && !race->over) {
        if (race->waits) {
            const Waiting waiting;
            race->changed.wait(lock, [&] { return race->over || !race->waits; });
            deadline = Clock::now() + seconds(policy_.hedge_after_s);
        } else if (has_second) {
            race->changed.wait(lock, has_news);
        } else if (!race->changed.wait_until(lock, deadline, has_news)) {
            has_second = true;
            if (enter(race, true)) ++hedged_;
        }
    }
    if (!has_first) return std::nullopt;
    return std::move(race->result);
}

// Lets a helper read. The race's lock is held.
bool Reader::enter(const std::shared_ptr<Race>& race, bool is_second) {
    const bool entered = helpers_->run([self = shared_from_this(), race, is_second] {
        InRace terms(*race, is_second);
        if (terms.is_over()) return;
        // For fault points, a second read is another try.
        Tried last;
        try {
            last = self->tried(race->range, is_second ? 1 : 0, terms);
        } catch (const std::bad_alloc&) {
            last.result.error = kNoMemory;
        }
        std::scoped_lock lock(race->mutex);
        --race->running;
        if (race->over || (last.may_pass && race->running > 0)) return;
        race->end(std::move(last.result));
    });
    race->running += entered;
    return entered;
}

bool Reader::close(std::chrono::milliseconds patience) {
    {
        std::scoped_lock lock(mutex_);
        closed_ = true;
        for (Race* race : races_) {
            std::scoped_lock inner(race->mutex);
            if (!race->over) race->end(closed_result());
        }
        ended_.notify_all();
    }
    access_.open_files.close();
    return helpers_->close(patience);
}

}  // namespace standpipe
