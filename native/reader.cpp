#include "reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "desk.h"
#include "faults.h"

namespace penstock {
namespace {

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

// Tells waiting for storage from being preempted: a thread that blocks gives up its core by itself.
class StorageClock {
  public:
    void start() noexcept {
        switches_ = voluntary_switches();
        begin_ = std::chrono::steady_clock::now();
    }
    void stop() noexcept {
        if (voluntary_switches() != switches_)
            blocked_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    }
    double blocked_s() const noexcept { return blocked_s_; }

  private:
    static long voluntary_switches() noexcept {
        struct rusage usage;
        return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nvcsw : 0;
    }

    long switches_ = 0;
    std::chrono::steady_clock::time_point begin_;
    double blocked_s_ = 0;
};

ReadResult failed(std::string what) {
    ReadResult result;
    result.error = std::move(what);
    return result;
}

std::string system_text(const char* what) {
    const int code = errno;
    char text[128];
    return std::string(what) + ": " + strerror_r(code, text, sizeof text);
}

}  // namespace

Buffer& Buffer::operator=(Buffer&& other) noexcept {
    if (this == &other) return *this;
    reset();
    pool_ = std::exchange(other.pool_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
    capacity_ = std::exchange(other.capacity_, 0);
    return *this;
}

void Buffer::reset() noexcept {
    if (pool_) pool_->take_back({data_, capacity_});
    pool_ = nullptr;
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
            buffer.pool_ = this;
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

std::string check_extent(const struct stat& info, int64_t offset, int64_t length, uint64_t max_bytes,
                         size_t& wanted) {
    if (!S_ISREG(info.st_mode)) return S_ISDIR(info.st_mode) ? "is a directory" : "is not a regular file";
    const int64_t rest = std::max<int64_t>(info.st_size - offset, 0);
    if (length > rest)
        return "truncated: file ends after " + std::to_string(rest) + " of " + std::to_string(length) +
               " bytes";
    wanted = static_cast<size_t>(length < 0 ? rest : length);
    if (wanted > max_bytes)
        return "too large: " + std::to_string(wanted) +
               " encoded bytes are more than side_memory=" + std::to_string(max_bytes);
    return {};
}

// pread, open and fstat as the system does them, or as a fault point says. `key`: of the file.
ssize_t pread_at(int file, std::span<uint8_t> out, int64_t offset, uint64_t key) {
    const Fault fault = faultpoint(Point::read_pread, key);
    errno = fault.error;
    if (fault.error) return -1;
    return fault.cut ? 0 : pread(file, out.data(), out.size(), offset);
}

int open_file(const std::string& path, uint64_t key) {
    const Fault fault = faultpoint(Point::read_open, key);
    errno = fault.error;
    // Non-blocking, so that opening a FIFO can't wait for a writer; it means nothing for regular files.
    return fault.error ? -1 : open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

int examine(int file, struct stat& info, uint64_t key) {
    const Fault fault = faultpoint(Point::read_stat, key);
    errno = fault.error;
    return fault.error ? -1 : fstat(file, &info);
}

std::string read_fully(int file, int64_t offset, std::span<uint8_t> out, uint64_t key) {
    for (size_t done = 0; done < out.size();) {
        const ssize_t got = pread_at(file, out.subspan(done), offset + static_cast<int64_t>(done), key);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return system_text("can't be read");
        if (got == 0)
            return "truncated: file ends after " + std::to_string(done) + " of " +
                   std::to_string(out.size()) + " bytes";
        done += static_cast<size_t>(got);
    }
    return {};
}

}  // namespace

ReadResult read_sample(const std::string& path, int64_t offset, int64_t length, uint64_t max_bytes,
                       BufferPool& pool) {
    const uint64_t key = has_faults() ? fault_key(path) : 0;
    StorageClock clock;
    clock.start();
    const Descriptor file(open_file(path, key));
    if (file.get() < 0) return failed(system_text("can't be opened"));
    struct stat info;
    if (examine(file.get(), info, key) != 0) return failed(system_text("can't be examined"));
    clock.stop();
    size_t wanted = 0;
    if (std::string text = check_extent(info, offset, length, max_bytes, wanted); !text.empty())
        return failed(std::move(text));

    ReadResult result;
    result.buffer = pool.lend(std::max<size_t>(wanted, 1));
    if (!result.buffer.data()) return failed("no memory for its " + std::to_string(wanted) + " bytes");
    clock.start();
    result.error = read_fully(file.get(), offset, {result.buffer.data(), wanted}, key);
    if (faultpoint(Point::read_bytes, key).damage) damage({result.buffer.data(), wanted});
    clock.stop();
    result.size = result.error.empty() ? wanted : 0;
    result.blocked_s = clock.blocked_s();
    return result;
}

}  // namespace penstock
