#include "io/reader.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <utility>

#include "io/file_calls.h"
#include "io/one_try.h"
#include "io/storage_clock.h"
#include "system/faults.h"
#include "system/keys.h"

namespace standpipe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLongestPause_s = 10;  // between two tries
constexpr int kMostHelpers = 1024;      // threads that read for others

}  // namespace

int64_t ns_of(const struct timespec& time) noexcept {
    return int64_t{time.tv_sec} * kSecond_ns + time.tv_nsec;
}

Stamp stamp_of(const struct stat& info) noexcept {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);  // that inodes are given their time from
    const int64_t now_ns = ns_of(now), mtime_ns = ns_of(info.st_mtim), ctime_ns = ns_of(info.st_ctim);
    // A file system that knows whole seconds only has a coarser one.
    const bool is_coarse = ctime_ns % kSecond_ns == 0;
    const bool may_repeat = is_coarse ? ctime_ns > now_ns - kRacy_ns : ctime_ns >= now_ns;
    return {info.st_size, mtime_ns, ctime_ns, may_repeat || mtime_ns > now_ns - kRacy_ns};
}

Looked look_at(const std::string& path) {
    StorageClock clock;
    clock.start();
    struct stat info;
    errno = has_faults() ? faultpoint(Point::read_stat, fault_key(path)).error : 0;
    const bool found = errno == 0 && stat(path.c_str(), &info) == 0;
    clock.stop();
    return {found, found ? stamp_of(info) : Stamp{}, clock.took_s(), clock.blocked_s()};
}

namespace {

// Before the next try: twice as long each time, and not the same for all files that a server's restart
// struck.
double backoff_s(const ReadPolicy& policy, const std::string& path, int tries) {
    const double part = 0.5 + Draws(mix(fault_key(path), static_cast<uint64_t>(tries))).uniform();
    return std::min(std::ldexp(policy.backoff_s, std::min(tries - 1, 60)) * part, kLongestPause_s);
}

// Returns how often something was tried, for the text of its error; empty for once.
std::string tried_text(int tries, Clock::time_point begin) {
    if (tries == 1) return {};
    char room[64];
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    std::snprintf(room, sizeof room, " (%d tries in %.2g s)", tries, seconds);
    return room;
}

}  // namespace

ReadResult closed_result() { return {.error = "the loader was closed", .closed = true}; }

// Of a read in the thread that asked for it.
class Reader::Alone final : public Terms {
  public:
    Alone(Reader& reader, BufferPool& buffers) : reader_(reader), buffers_(buffers) {}

    Buffer lend(size_t bytes) override { return buffers_.lend(bytes); }
    bool pause(double seconds) override {
        std::unique_lock lock(reader_.mutex_);
        const std::chrono::duration<double> time(seconds);
        return !reader_.ended_.wait_for(lock, time, [this] { return reader_.closed_; });
    }

  private:
    Reader& reader_;
    BufferPool& buffers_;
};

Reader::Reader(const ReadPolicy& policy, std::shared_ptr<BufferPool> hedged, uint64_t most_hedged)
    : policy_(policy),
      hedged_buffers_(std::move(hedged)),
      most_hedged_(most_hedged),
      helpers_(std::make_shared<Helpers>(kMostHelpers)) {}

Reader::~Reader() { close(std::chrono::milliseconds(0)); }

ReadResult Reader::read(const FileRange& range, BufferPool& buffers) {
    if (policy_.hedge_after_s > 0) {
        FileRange small = range;
        small.max_bytes = std::min(range.max_bytes, most_hedged_);
        auto result = raced(small);
        if (result && !(result->too_large && small.max_bytes < range.max_bytes)) return std::move(*result);
    }
    Alone terms(*this, buffers);
    return tried(range, 0, terms).result;
}

size_t Reader::read_together(std::span<const FileRange> ranges, BufferPool& buffers,
                             std::span<ReadResult> results) {
    if (policy_.hedge_after_s > 0) return 0;
    const size_t count = try_together(ranges, buffers, results, access_);
    if (count > 0) note_slowest(static_cast<double>(count) * results.front().took_s);
    return count;
}

void Reader::note_slowest(double took_s) noexcept {
    double slowest_s = slowest_s_;
    while (took_s > slowest_s && !slowest_s_.compare_exchange_weak(slowest_s, took_s)) continue;
}

// attempt: how many tries were before
Tried Reader::tried(const FileRange& range, int attempt, Terms& terms) {
    const auto begin = Clock::now();
    for (int tries = 1;; ++tries) {
        Tried last = try_once(range, attempt + tries - 1, terms, access_);
        note_slowest(last.result.took_s);
        if (last.result.error.empty()) return last;
        if (!last.may_pass || tries > policy_.retries) {
            last.result.error += tried_text(tries, begin);
            return last;
        }
        ++retries_;
        if (!terms.pause(backoff_s(policy_, range.path, tries))) return {closed_result(), false};
    }
}

}  // namespace standpipe
