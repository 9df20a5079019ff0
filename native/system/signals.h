// Blocks signals in the threads of a loader.
#pragma once

#include <pthread.h>

#include <csignal>

namespace standpipe {

// While it lives, threads that are started take no signals but those of their own faults: Ctrl-C shall wake
// the main thread, which may be waiting for a batch.
class SignalsBlocked {
  public:
    SignalsBlocked() {
        sigset_t blocked;
        sigfillset(&blocked);
        for (int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS}) sigdelset(&blocked, own);
        pthread_sigmask(SIG_SETMASK, &blocked, &before_);
    }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  private:
    sigset_t before_;
};

}  // namespace standpipe
