// Runs a fuzz target on inputs from its standard input, where libFuzzer isn't at hand: tests/fuzz/driver.py
// writes them, each behind its length. The target answers each with a byte. An input that takes longer or
// more memory than it may ends the process, as does one on which the target fails.
//   rows_fuzz TIMEOUT_S RSS_LIMIT_MB
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

// The quarantine is small, so that what the process holds is what the target holds.
extern "C" const char* __asan_default_options() {
    return "abort_on_error=1:quarantine_size_mb=16:detect_leaks=1:allocator_may_return_null=1:"
           "max_malloc_fill_size=1048576";
}
extern "C" const char* __ubsan_default_options() {
    return "halt_on_error=1:abort_on_error=1:print_stacktrace=1";
}

namespace {

// Processor time for one input, as other work on the machine makes no input slow, and ten times as much time
// for one that waits; 0: no limit.
void limit(unsigned seconds) {
    const itimerval timer{{0, 0}, {static_cast<time_t>(seconds), 0}};
    setitimer(ITIMER_PROF, &timer, nullptr);
    alarm(10 * seconds);
}

long peak_rss_mb() {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss / 1024;
}

}  // namespace

int main(int count, char** words) {
    if (count != 3) return 2;
    const auto timeout_s = static_cast<unsigned>(std::strtoul(words[1], nullptr, 10));
    const long rss_limit_mb = std::strtol(words[2], nullptr, 10);
    std::vector<uint8_t> input;
    for (uint64_t size; std::fread(&size, sizeof size, 1, stdin) == 1;) {
        input.resize(size);
        if (std::fread(input.data(), 1, size, stdin) != size) return 2;
        limit(timeout_s);
        LLVMFuzzerTestOneInput(input.data(), size);
        limit(0);
        if (peak_rss_mb() > rss_limit_mb) {
            std::fputs("driver: the process took more memory than -rss_limit_mb\n", stderr);
            std::abort();
        }
        if (write(STDOUT_FILENO, "", 1) != 1) return 2;
    }
    return 0;
}
