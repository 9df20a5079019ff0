#include "io/read_times.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "system/helpers.h"

namespace standpipe {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLooks = std::chrono::milliseconds(50);  // between two looks for an interrupt

// The state that the threads share. A thread that is stuck keeps it alive.
struct Reading {
    const ReadTask task;
    const Clock::time_point ends;
    const std::shared_ptr<BufferPool> buffers;
    const std::shared_ptr<Reader> reader;

    std::mutex mutex;  // of what follows
    std::condition_variable changed;
    bool stopped = false;
    size_t next = 0;
    int running = 0;
    ReadTimes times;

    void read() {
        std::unique_lock lock(mutex);
        while (has_more() && !stopped && (next == 0 || Clock::now() < ends)) {  // the first one in any case
            const FileRange& file = task.files[next++ % task.files.size()];
            lock.unlock();
            ReadResult read = reader->read(file, *buffers);
            read.buffer.reset();
            lock.lock();
            note(read);
        }
        --running;
        changed.notify_all();
    }

    bool has_more() const { return next < task.files.size() || (task.again && !task.files.empty()); }

    void note(const ReadResult& read) {
        if (!read.error.empty()) {
            ++times.failed;
            times.error = read.error;
            return;
        }
        times.took_s.push_back(read.took_s);
        times.bytes += read.size;
        times.blocked += read.blocked_s > 0;
    }
};

Clock::duration duration(double seconds) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

ReadTimes time_reads(ReadTask task, const ReadPolicy& policy, const std::function<bool()>& interrupted) {
    const auto begin = Clock::now();
    const auto ends = begin + duration(task.seconds);
    const auto buffers = std::make_shared<BufferPool>(task.buffer_bytes);
    const auto reader = std::make_shared<Reader>(policy, buffers, UINT64_MAX);
    const auto reading = std::make_shared<Reading>(std::move(task), ends, buffers, reader);
    const auto helpers = std::make_shared<Helpers>(reading->task.threads);
    std::unique_lock lock(reading->mutex);
    for (int i = 0; i < reading->task.threads; ++i)
        reading->running += helpers->run([reading] { reading->read(); });
    const auto all_done = [&] { return reading->running == 0; };
    const auto over = ends + duration(reading->task.patience_s);
    while (!reading->stopped && !reading->changed.wait_for(lock, kLooks, all_done) && Clock::now() < over) {
        lock.unlock();
        const bool stop = interrupted();
        lock.lock();
        reading->stopped = stop;
    }
    ReadTimes times = reading->times;
    times.hung = static_cast<uint64_t>(reading->running);
    times.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    lock.unlock();
    buffers->close();
    reader->close(std::chrono::milliseconds(0));
    helpers->close(std::chrono::milliseconds(0));
    return times;
}

}  // namespace standpipe
