#include "memory/forks.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "memory/slots.h"

namespace standpipe {
namespace {

struct Rings {
    std::mutex mutex;
    std::vector<SlotRing*> all;
};

// Never destroyed: a process may fork while it ends.
Rings& rings() {
    static Rings* const made = new Rings;
    return *made;
}

// The locks are held across the fork, so that the child finds slots and locks as they were at that moment.
void before_fork() {
    rings().mutex.lock();
    for (SlotRing* ring : rings().all) ring->before_fork();
}

void in_parent() {
    for (SlotRing* ring : rings().all) ring->after_fork(false);
    rings().mutex.unlock();
}

void in_child() {
    for (SlotRing* ring : rings().all) ring->after_fork(true);
    rings().mutex.unlock();
}

struct Hidden {
    std::atomic<uintptr_t> begin{0}, end{0};
    std::atomic<HiddenFor> reason{};
};
std::array<Hidden, 64> hidden;  // the newest; what is hidden beyond that faults without words
std::atomic<size_t> num_hidden{0};
std::array<char, 512> refusal;
struct sigaction action_before;

// Says why, and lets who was asked before, or the system, end the process: the access is tried again.
// Async-signal-safe: it only reads what is there.
void say_why(int signal, siginfo_t* info, void*) {
    const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
    for (const Hidden& each : hidden) {
        if (at < each.begin || at >= each.end) continue;
        constexpr std::string_view no_room =
            "standpipe: this process was forked while its parent held a batch, and memory= has no room to "
            "keep the batch for both. Copy it before the fork, or raise memory=\n";
        const std::string_view text = each.reason == HiddenFor::budget ? no_room : refusal.data();
        (void)!write(STDERR_FILENO, text.data(), text.size());
        break;
    }
    sigaction(signal, &action_before, nullptr);
}

}  // namespace

Inherited& Inherited::operator=(Inherited&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(page_, other.page_);
    return *this;
}

int Inherited::begin() noexcept {
    const int id = shmget(IPC_PRIVATE, 1, 0600);
    if (id < 0) return errno;
    void* const page = shmat(id, nullptr, 0);
    int error = reinterpret_cast<intptr_t>(page) == -1 ? errno : 0;
    // Linux keeps it, and answers for it, until the last process detaches. Where another system doesn't,
    // is_held() would be wrong.
    shmctl(id, IPC_RMID, nullptr);
    shmid_ds state;
    if (!error && shmctl(id, IPC_STAT, &state) != 0) {
        error = errno;
        shmdt(page);
    }
    if (error) return error;
    id_ = id;
    page_ = page;
    return 0;
}

void Inherited::let_go() noexcept {
    if (page_) shmdt(std::exchange(page_, nullptr));
}

bool Inherited::is_held() noexcept {
    if (id_ < 0) return false;
    // Where the system doesn't tell, such as to another user that this process became, it may be held.
    shmid_ds state;
    const bool told = shmctl(id_, IPC_STAT, &state) == 0;
    if (told ? state.shm_nattch > 0 : errno != EINVAL && errno != EIDRM) return true;
    id_ = -1;
    return false;
}

void see_to_at_fork(SlotRing* ring) {
    static const int once = pthread_atfork(before_fork, in_parent, in_child);
    (void)once;
    std::scoped_lock lock(rings().mutex);
    rings().all.push_back(ring);
}

void forget_at_fork(SlotRing* ring) noexcept {
    std::scoped_lock lock(rings().mutex);
    std::erase(rings().all, ring);
}

void note_refusal(int error) noexcept {
    std::snprintf(
        refusal.data(), refusal.size(),
        "standpipe: this process was forked while its parent held a batch, and the system refused the "
        "System V shared memory by which both keep the batch (%s). Copy it before the fork, or allow "
        "shmget: see kernel.shmmni, kernel.shmall and the container's seccomp profile\n",
        std::strerror(error));
}

void hide(void* begin, size_t bytes, HiddenFor reason) noexcept {
    if (num_hidden == 0) {
        struct sigaction action{};
        action.sa_sigaction = say_why;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigaction(SIGSEGV, &action, &action_before);
    }
    Hidden& next = hidden[num_hidden++ % hidden.size()];
    next.begin = reinterpret_cast<uintptr_t>(begin);
    next.end = next.begin + bytes;
    next.reason = reason;
    mprotect(begin, bytes, PROT_NONE);
}

}  // namespace standpipe
