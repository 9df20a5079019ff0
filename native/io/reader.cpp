#include "io/reader.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "system/checksum.h"
#include "system/descriptor.h"
#include "system/faults.h"
#include "system/keys.h"

namespace standpipe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLongestPause_s = 10;  // between two tries
constexpr int kMostHelpers = 1024;      // threads that read for others
constexpr int64_t kSecond_ns = 1'000'000'000;
// The coarsest clocks of file systems tick every two seconds (FAT; ext3 and some servers every second).
constexpr int64_t kRacy_ns = 2 * kSecond_ns;
constexpr int64_t kLongestSettling_ns = 20'000'000;

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
    static long voluntary_switches() noexcept {
        struct rusage usage;
        return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nvcsw : 0;
    }

    long switches_ = 0;
    Clock::time_point begin_;
    double took_s_ = 0, blocked_s_ = 0;
};

// A storage that restarts, a network that is down for a moment, a file server's old handle (which opening the
// file anew replaces), and what other processes or threads hold now.
bool may_pass(int error) noexcept {
    switch (error) {
        case EIO:
        case ESTALE:
        case EREMOTEIO:
        case ETIMEDOUT:
        case EAGAIN:
        case EBUSY:
        case ENETDOWN:
        case ENETUNREACH:
        case ENETRESET:
        case ECONNABORTED:
        case ECONNRESET:
        case ECONNREFUSED:
        case ENOTCONN:
        case EHOSTDOWN:
        case EHOSTUNREACH:
        case ENOMEM:
        case ENOBUFS:
        case EMFILE:
        case ENFILE: return true;
        default: return false;
    }
}

std::string system_text(const char* what, int error) {
    char room[128];
    std::string text = std::string(what) + ": " + strerror_r(error, room, sizeof room);
    struct rlimit files;
    if (error == EMFILE && getrlimit(RLIMIT_NOFILE, &files) == 0)
        text += ", " + std::to_string(files.rlim_cur) + " (ulimit -n)";
    return text;
}

std::string too_short(size_t bytes, size_t wanted) {
    return "truncated: file ends after " + std::to_string(bytes) + " of " + std::to_string(wanted) + " bytes";
}

std::string check_extent(const struct stat& info, const FileRange& range, size_t& wanted) {
    if (!S_ISREG(info.st_mode)) return S_ISDIR(info.st_mode) ? "is a directory" : "is not a regular file";
    const int64_t rest = std::max<int64_t>(info.st_size - range.offset, 0);
    if (range.length > rest) return too_short(static_cast<size_t>(rest), static_cast<size_t>(range.length));
    wanted = static_cast<size_t>(range.length < 0 ? rest : range.length);
    if (wanted > range.max_bytes)
        return "too large: " + std::to_string(wanted) +
               " encoded bytes are more than large_image_memory=" + std::to_string(range.max_bytes);
    return {};
}

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

// Whether the bytes of a file are the same, unless the time at which its inode was changed is another one.
bool is_unchanged(const struct stat& before, const struct stat& after) noexcept {
    return before.st_ino == after.st_ino && before.st_size == after.st_size &&
           ns_of(before.st_mtim) == ns_of(after.st_mtim);
}

bool same_inode_time(const struct stat& before, const struct stat& after) noexcept {
    return ns_of(before.st_ctim) == ns_of(after.st_ctim);
}

// How long ago a file was changed. Not what lies in the future, which another clock has set.
int64_t age_ns(const struct stat& info) noexcept {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t youngest_ns = INT64_MAX;
    for (const struct timespec& time : {info.st_mtim, info.st_ctim})
        if (const int64_t ns = ns_of(now) - ns_of(time); ns >= 0) youngest_ns = std::min(youngest_ns, ns);
    return youngest_ns;
}

// After so long a file is settled: what is written to it from then on gives it another time. What is written
// within a tick of the clock that inodes have their time from has the same time, and that clock may be a tick
// late.
int64_t settling_ns() noexcept {
    struct timespec tick;
    clock_getres(CLOCK_REALTIME_COARSE, &tick);
    return std::min(2 * ns_of(tick), kLongestSettling_ns);
}

// One try at a range of a file.
class Try {
  public:
    // attempt: how many tries were before
    Try(const FileRange& range, int attempt)
        : range_(range), attempt_(attempt), key_(has_faults() ? fault_key(range.path) : 0) {}

    Tried read(Terms& terms) {
        clock_.start();
        const Descriptor file(open_file());
        if (file.get() < 0) return refused("can't be opened");
        struct stat before;
        if (examine(file.get(), before) != 0) return refused("can't be examined");
        if (!settle(file.get(), before, terms)) return {closed_result(), false};
        const Stamp stamp = stamp_of(before);
        clock_.stop();
        size_t wanted = 0;
        if (std::string text = check_extent(before, range_, wanted); !text.empty()) {
            Tried tried = failed(std::move(text), false);
            tried.result.too_large = wanted > range_.max_bytes;
            return tried;
        }

        Buffer buffer = terms.lend(std::max<size_t>(wanted, 1));
        if (!buffer.data()) return failed("no memory for its " + std::to_string(wanted) + " bytes", true);
        const std::span<uint8_t> out(buffer.data(), wanted);
        clock_.start();
        ssize_t got = 0;
        // chmod, another name and what sets the old time after a write change the inode's time alone. Then
        // the file is read twice, and is what both times gave, or the second time without another change.
        for (std::optional<uint32_t> first; true;) {
            got = read_fully(file.get(), out);
            if (got < 0) return refused("can't be read");
            struct stat after;
            if (examine(file.get(), after) != 0) return refused("can't be examined");
            if (!is_unchanged(before, after)) return changed();
            if (same_inode_time(before, after)) break;
            const uint32_t bytes = checksum(out);
            if (first == bytes) break;
            if (first) return changed();
            first = bytes;
            before = after;
            if (!settle(file.get(), before, terms)) return {closed_result(), false};
        }
        clock_.stop();
        if (static_cast<size_t>(got) < wanted)
            return failed(too_short(static_cast<size_t>(got), wanted), true);
        if (faultpoint(Point::read_bytes, key_, attempt_).damage) damage(out);
        return {{std::move(buffer), wanted, {}, false, clock_.took_s(), clock_.blocked_s(), stamp}, false};
    }

  private:
    // Waits until whatever changes a file gives it another time than `info` has, and for a write that goes
    // on. False: the loader was closed. Only a file that was changed just now takes any time.
    bool settle(int file, const struct stat& info, Terms& terms) {
        const int64_t age = age_ns(info);
        if (!S_ISREG(info.st_mode) || age >= kRacy_ns) return true;
        clock_.stop();
        if (const int64_t left_ns = settling_ns() - age; left_ns > 0)
            if (!terms.pause(static_cast<double>(left_ns) * 1e-9)) return false;
        clock_.start();
        // A write takes its time first and copies its bytes then, and may be stopped between. Where local
        // file systems look for data, they wait for a write that goes on.
        lseek(file, 0, SEEK_DATA);
        return true;
    }

    // Calls of the system, or what a fault point says instead.

    int open_file() const {
        const Fault fault = faultpoint(Point::read_open, key_, attempt_);
        errno = fault.error;
        // Non-blocking, so that opening a FIFO can't wait for a writer, and no terminal becomes the
        // process's: both mean nothing for regular files.
        return fault.error ? -1 : open(range_.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    }

    int examine(int file, struct stat& info) const {
        const Fault fault = faultpoint(Point::read_stat, key_, attempt_);
        errno = fault.error;
        return fault.error ? -1 : fstat(file, &info);
    }

    ssize_t read_some(int file, std::span<uint8_t> out, int64_t offset) const {
        const Fault fault = faultpoint(Point::read_pread, key_, attempt_);
        errno = fault.error;
        if (fault.error) return -1;
        return fault.cut ? 0 : pread(file, out.data(), out.size(), offset);
    }

    // How many bytes there were, up to all of `out`; -1 for an error.
    ssize_t read_fully(int file, std::span<uint8_t> out) const {
        size_t done = 0;
        while (done < out.size()) {
            const ssize_t got =
                read_some(file, out.subspan(done), range_.offset + static_cast<int64_t>(done));
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) return -1;
            if (got == 0) break;
            done += static_cast<size_t>(got);
        }
        return static_cast<ssize_t>(done);
    }

    // The system has just said no.
    Tried refused(const char* what) {
        const int error = errno;
        clock_.stop();
        return failed(system_text(what, error), may_pass(error));
    }

    Tried changed() {
        clock_.stop();
        return failed("changes while it is read; write another file beside it and rename that instead", true);
    }

    Tried failed(std::string text, bool passing) const {
        return {{{}, 0, std::move(text), false, clock_.took_s(), clock_.blocked_s()}, passing};
    }

    const FileRange& range_;
    const int attempt_;
    const uint64_t key_;  // of the file, for fault points
    StorageClock clock_;
};

// Before the next try: twice as long each time, and not the same for all files that a server's restart
// struck.
double backoff_s(const ReadPolicy& policy, const std::string& path, int tries) {
    const double part = 0.5 + Draws(mix(fault_key(path), static_cast<uint64_t>(tries))).uniform();
    return std::min(std::ldexp(policy.backoff_s, std::min(tries - 1, 60)) * part, kLongestPause_s);
}

// How often something was tried, for the text of its error; nothing for once.
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

// attempt: how many tries were before
Tried Reader::tried(const FileRange& range, int attempt, Terms& terms) {
    const auto begin = Clock::now();
    for (int tries = 1;; ++tries) {
        Tried last = Try(range, attempt + tries - 1).read(terms);
        double slowest_s = slowest_s_;
        const double took_s = last.result.took_s;
        while (took_s > slowest_s && !slowest_s_.compare_exchange_weak(slowest_s, took_s)) continue;
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
