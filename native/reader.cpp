#include "reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>

#include "desk.h"
#include "faults.h"
#include "keys.h"

namespace penstock {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLongestPause_s = 10;  // between two tries
constexpr size_t kGrain =
    64 << 10;  // capacities are multiples of this, so that buffers fit one another's samples

size_t rounded_up(size_t bytes) noexcept { return (bytes + kGrain - 1) / kGrain * kGrain; }

class Descriptor {
  public:
    explicit Descriptor(int fd) : fd_(fd) {}
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    ~Descriptor() {
        if (fd_ >= 0) ::close(fd_);
    }
    int get() const noexcept { return fd_; }

  private:
    int fd_;
};

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

}  // namespace

Buffer& Buffer::operator=(Buffer&& other) noexcept {
    if (this == &other) return *this;
    reset();
    pool_ = std::move(other.pool_);
    data_ = std::exchange(other.data_, nullptr);
    capacity_ = std::exchange(other.capacity_, 0);
    return *this;
}

void Buffer::reset() noexcept {
    if (pool_) pool_->take_back({data_, capacity_});
    pool_.reset();
    data_ = nullptr;
    capacity_ = 0;
}

BufferPool::~BufferPool() {
    for (const Piece& piece : kept_) munmap(piece.data, piece.capacity);
}

// Whether `take` would succeed now; the lock is held.
bool BufferPool::fits(size_t capacity) const noexcept {
    return in_use_ == 0 || in_use_ + capacity <= budget_ ||
           std::any_of(kept_.begin(), kept_.end(), [&](const Piece& p) { return p.capacity >= capacity; });
}

// A kept piece, or a new one in the place of kept ones that are too small; the lock is held.
BufferPool::Piece BufferPool::take(size_t capacity) noexcept {
    const auto fit =
        std::find_if(kept_.rbegin(), kept_.rend(), [&](const Piece& p) { return p.capacity >= capacity; });
    if (fit != kept_.rend()) {
        const Piece piece = *fit;
        kept_.erase(std::next(fit).base());
        return piece;
    }
    while (total_ + capacity > budget_ && !kept_.empty()) {
        munmap(kept_.front().data, kept_.front().capacity);
        total_ -= kept_.front().capacity;
        kept_.erase(kept_.begin());
    }
    void* fresh = mmap(nullptr, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED) return {nullptr, 0};
    total_ += capacity;
    return {static_cast<uint8_t*>(fresh), capacity};
}

// Waking all who wait for each buffer that comes back cost a third of a row's time. The lock is held.
void BufferPool::wake_first() noexcept {
    if (!waiting_.empty() && (closed_ || fits(waiting_.front()->capacity)))
        waiting_.front()->turn.notify_one();
}

Buffer BufferPool::lend(size_t bytes) {
    Waiter me{rounded_up(bytes), {}};
    Buffer buffer;
    if (admits_ && !admits_(bytes)) return buffer;
    std::unique_lock lock(mutex_);
    if (!closed_ && (!waiting_.empty() || !fits(me.capacity))) {
        const Waiting waiting;
        waiting_.push_back(&me);
        me.turn.wait(lock, [&] { return closed_ || (waiting_.front() == &me && fits(me.capacity)); });
        std::erase(waiting_, &me);
    }
    if (!closed_) {
        const Piece piece = take(me.capacity);
        if (piece.data) {
            buffer.pool_ = shared_from_this();
            buffer.data_ = piece.data;
            buffer.capacity_ = piece.capacity;
            in_use_ += piece.capacity;
        }
    }
    wake_first();
    return buffer;
}

void BufferPool::take_back(Piece piece) noexcept {
    std::scoped_lock lock(mutex_);
    in_use_ -= piece.capacity;
    if (total_ > budget_ || closed_) {
        munmap(piece.data, piece.capacity);
        total_ -= piece.capacity;
    } else {
        kept_.push_back(piece);
    }
    wake_first();
}

void BufferPool::close() {
    std::scoped_lock lock(mutex_);
    closed_ = true;
    for (Waiter* waiter : waiting_) waiter->turn.notify_one();
}

namespace {

// What became of one try.
struct Tried {
    ReadResult result;
    bool may_pass = false;  // the error, if the same is tried again
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
               " encoded bytes are more than side_memory=" + std::to_string(range.max_bytes);
    return {};
}

bool is_unchanged(const struct stat& before, const struct stat& after) noexcept {
    return before.st_ino == after.st_ino && before.st_size == after.st_size &&
           before.st_mtim.tv_sec == after.st_mtim.tv_sec && before.st_mtim.tv_nsec == after.st_mtim.tv_nsec;
}

// One try at a range of a file.
class Try {
  public:
    // attempt: how many tries were before
    Try(const FileRange& range, int attempt)
        : range_(range), attempt_(attempt), key_(has_faults() ? fault_key(range.path) : 0) {}

    Tried read(BufferPool& buffers) {
        clock_.start();
        const Descriptor file(open_file());
        if (file.get() < 0) return refused("can't be opened");
        struct stat before;
        if (examine(file.get(), before) != 0) return refused("can't be examined");
        clock_.stop();
        size_t wanted = 0;
        if (std::string text = check_extent(before, range_, wanted); !text.empty())
            return failed(std::move(text), false);

        Buffer buffer = buffers.lend(std::max<size_t>(wanted, 1));
        if (!buffer.data()) return failed("no memory for its " + std::to_string(wanted) + " bytes", false);
        const std::span<uint8_t> out(buffer.data(), wanted);
        clock_.start();
        const ssize_t got = read_fully(file.get(), out);
        if (got < 0) return refused("can't be read");
        struct stat after;
        if (examine(file.get(), after) != 0) return refused("can't be examined");
        clock_.stop();
        if (!is_unchanged(before, after)) return failed("changed while it was read", true);
        if (static_cast<size_t>(got) < wanted)
            return failed(too_short(static_cast<size_t>(got), wanted), true);
        if (faultpoint(Point::read_bytes, key_, attempt_).damage) damage(out);
        return {{std::move(buffer), wanted, {}, clock_.took_s(), clock_.blocked_s()}, false};
    }

  private:
    // Calls of the system, or what a fault point says instead.

    int open_file() const {
        const Fault fault = faultpoint(Point::read_open, key_, attempt_);
        errno = fault.error;
        // Non-blocking, so that opening a FIFO can't wait for a writer; it means nothing for regular files.
        return fault.error ? -1 : open(range_.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
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

    Tried failed(std::string text, bool passing) const {
        return {{{}, 0, std::move(text), clock_.took_s(), clock_.blocked_s()}, passing};
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

ReadResult Reader::read(const FileRange& range, BufferPool& buffers) {
    const auto begin = Clock::now();
    for (int tries = 1;; ++tries) {
        auto [result, may_pass] = Try(range, tries - 1).read(buffers);
        note(result);
        if (result.error.empty()) return std::move(result);
        if (!may_pass || tries > policy_.retries) {
            result.error += tried_text(tries, begin);
            return std::move(result);
        }
        ++retries_;
        if (!pause(backoff_s(policy_, range.path, tries))) {
            result.error = "the loader was closed";
            return std::move(result);
        }
    }
}

void Reader::close() {
    std::scoped_lock lock(mutex_);
    closed_ = true;
    ended_.notify_all();
}

// False when it was closed meanwhile.
bool Reader::pause(double seconds) {
    std::unique_lock lock(mutex_);
    return !ended_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return closed_; });
}

void Reader::note(const ReadResult& tried) noexcept {
    double slowest_s = slowest_s_;
    while (tried.took_s > slowest_s && !slowest_s_.compare_exchange_weak(slowest_s, tried.took_s)) continue;
}

}  // namespace penstock
