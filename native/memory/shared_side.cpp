#include "memory/shared_side.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <new>
#include <span>
#include <system_error>

#include "memory/heartbeat.h"

namespace standpipe {
namespace {

[[noreturn]] void fail(int code, const char* what) {
    throw std::system_error(code, std::generic_category(), what);
}

}  // namespace

// ticket  its place among those who wait, or have the turn; 0 for one that does neither
struct SharedSide::Account {
    uint64_t bytes = 0;
    uint64_t ticket = 0;
};

// Sums are made anew each time, so there are none that a process could leave half changed.
struct SharedSide::State {
    pthread_mutex_t mutex;
    std::atomic<uint32_t> changes{0};  // what waits, waits for another value
    std::atomic<uint64_t> cap{0};
    uint64_t peak = 0;
    uint64_t tickets = 0;
    uint64_t accounts = 0;

    std::span<Account> all() noexcept { return {reinterpret_cast<Account*>(this + 1), accounts}; }

    uint64_t used() noexcept {
        uint64_t sum = 0;
        for (const Account& each : all()) sum += each.bytes;
        return sum;
    }

    bool is_next(uint64_t ticket) noexcept {
        return std::ranges::none_of(
            all(), [ticket](const Account& each) { return each.ticket != 0 && each.ticket < ticket; });
    }
};

class SharedSide::Locked {
  public:
    explicit Locked(State& state) noexcept : state_(state) { lock(); }
    ~Locked() { pthread_mutex_unlock(&state_.mutex); }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;

    // Until somebody has changed something.
    void wait() noexcept {
        const uint32_t seen = state_.changes;
        pthread_mutex_unlock(&state_.mutex);
        syscall(SYS_futex, reinterpret_cast<uint32_t*>(&state_.changes), FUTEX_WAIT, seen, nullptr, nullptr,
                0);
        lock();
    }

    void tell() noexcept {
        ++state_.changes;
        syscall(SYS_futex, reinterpret_cast<uint32_t*>(&state_.changes), FUTEX_WAKE, INT_MAX, nullptr,
                nullptr, 0);
    }

  private:
    void lock() noexcept {
        if (pthread_mutex_lock(&state_.mutex) == EOWNERDEAD) pthread_mutex_consistent(&state_.mutex);
    }

    State& state_;
};

SharedSide::SharedSide(size_t accounts) {
    file_ = memfd_create("standpipe-side", MFD_CLOEXEC);
    if (file_ < 0) fail(errno, "memfd_create");
    try {
        if (ftruncate(file_, static_cast<off_t>(sizeof(State) + accounts * sizeof(Account))) != 0)
            fail(errno, "ftruncate");
        map(file_);
    } catch (...) {
        close(file_);
        throw;
    }
    new (state_) State;
    state_->accounts = accounts;
    for (Account& each : state_->all()) new (&each) Account;
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&state_->mutex, &kind);
    pthread_mutexattr_destroy(&kind);
}

SharedSide::SharedSide(int file) { map(file); }

SharedSide::~SharedSide() {
    munmap(state_, bytes_);
    if (file_ >= 0) close(file_);
}

void SharedSide::map(int file) {
    struct stat facts{};
    if (fstat(file, &facts) != 0) fail(errno, "fstat");
    bytes_ = static_cast<size_t>(facts.st_size);
    void* base = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (base == MAP_FAILED) fail(errno, "mmap");
    state_ = static_cast<State*>(base);
}

SharedSide::Account& SharedSide::account(size_t number) const noexcept { return state_->all()[number]; }

size_t SharedSide::accounts() const noexcept { return state_->accounts; }

uint64_t SharedSide::cap() const noexcept { return state_->cap; }

void SharedSide::set_cap(uint64_t bytes) {
    Locked locked(*state_);
    state_->cap = bytes;
    locked.tell();
}

uint64_t SharedSide::used() const {
    const Locked locked(*state_);
    return state_->used();
}

uint64_t SharedSide::used_by(size_t number) const {
    const Locked locked(*state_);
    return account(number).bytes;
}

uint64_t SharedSide::peak() const {
    const Locked locked(*state_);
    return state_->peak;
}

void SharedSide::take(size_t number, uint64_t bytes, bool has_turn, bool keeps_turn) {
    Locked locked(*state_);
    Account& mine = account(number);
    if (!has_turn) mine.ticket = ++state_->tickets;
    const auto my_turn = [&] {
        return state_->is_next(mine.ticket) && state_->used() + bytes <= state_->cap;
    };
    if (!my_turn()) {
        const Waiting waiting;
        while (!my_turn()) locked.wait();
    }
    mine.bytes += bytes;
    state_->peak = std::max(state_->peak, state_->used());
    if (!keeps_turn) mine.ticket = 0;
    locked.tell();
}

void SharedSide::give_back(size_t number, uint64_t bytes, bool had_turn) {
    Locked locked(*state_);
    Account& mine = account(number);
    mine.bytes -= std::min(mine.bytes, bytes);
    if (had_turn) mine.ticket = 0;
    locked.tell();
}

void SharedSide::clear(size_t number) {
    Locked locked(*state_);
    account(number) = Account{};
    locked.tell();
}

}  // namespace standpipe
