#include "system/watch.h"

#include <poll.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <thread>

#include "system/signals.h"

namespace standpipe {
namespace {

// A forked sibling of ours may have inherited the pipe's write end, so the pipe alone could tell too late.
int open_process(int process) {
#ifdef SYS_pidfd_open
    return static_cast<int>(syscall(SYS_pidfd_open, process, 0));
#else
    (void)process;
    errno = ENOSYS;
    return -1;
#endif
}

void wait_for_end(int pipe, int process) {
    pollfd watched[] = {{pipe, POLLIN, 0}, {process, POLLIN, 0}};
    for (;;) {
        if (poll(watched, process < 0 ? 1 : 2, -1) < 0 && errno == EINTR) continue;
        // Nobody writes into the pipe: that it can be read means that it has ended.
        kill(getpid(), SIGKILL);
    }
}

}  // namespace

void end_with(int pipe, int process) {
    const int opened = open_process(process);
    if (opened < 0 && errno == ESRCH) kill(getpid(), SIGKILL);
    const SignalsBlocked blocked;
    std::thread thread(wait_for_end, pipe, opened);
    pthread_setname_np(thread.native_handle(), "standpipe-end");  // system/threads.py knows it
    thread.detach();
}

}  // namespace standpipe
