// Runs a fuzz target where libFuzzer isn't at hand, with its flags:
//   rows_fuzz [-max_total_time=S] [-runs=N] [-seed=N] [-timeout=S] [-rss_limit_mb=N] [-artifact_prefix=P]
//   SEEDS…
// SEEDS are files and folders of files. Each runs as it is; then changes of them do, a function of the seed
// number alone, until time or runs are used up. What the target fails on is left in P<digest>, and what took
// it longest in Pslowest.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "fuzz/mutate.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" [[gnu::weak]] void __asan_init();

// Errors of every kind end in abort(), which leaves the input behind. The quarantine is small, so that what
// the process holds is what the target holds.
extern "C" const char* __asan_default_options() {
    return "abort_on_error=1:handle_abort=0:quarantine_size_mb=16:detect_leaks=1:allocator_may_return_null=1:"
           "max_malloc_fill_size=1048576";
}
extern "C" const char* __ubsan_default_options() {
    return "halt_on_error=1:abort_on_error=1:print_stacktrace=1";
}

namespace {

using standpipe::File;
using Clock = std::chrono::steady_clock;

struct Options {
    double seconds = 1e9;
    uint64_t runs = UINT64_MAX, seed = 1;
    unsigned timeout_s = 10;
    long rss_limit_mb = 1024;
    std::string artifact_prefix = "crash-";
    std::vector<std::string> seeds;
};

// The input that runs now, for the signal handlers.
const File* running = nullptr;
char artifact[4096];

// Of this process on a processor: other work on the machine makes no input slow.
double cpu_seconds() {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Processor time for one input, and ten times as much time for one that waits; 0: no limit.
void limit(unsigned seconds) {
    const itimerval timer{{0, 0}, {static_cast<time_t>(seconds), 0}};
    setitimer(ITIMER_PROF, &timer, nullptr);
    alarm(10 * seconds);
}

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

long peak_rss_mb() {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss / 1024;
}

void say(const char* text) { (void)!write(STDERR_FILENO, text, std::strlen(text)); }

void leave_input(int signal) {
    if (signal == SIGALRM || signal == SIGPROF) say("driver: one input took longer than -timeout\n");
    if (running) {
        const int file = open(artifact, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        (void)!write(file, running->data(), running->size());
        close(file);
        say("driver: the input is in ");
        say(artifact);
        say("\n");
    }
    std::signal(SIGABRT, SIG_DFL);
    std::abort();
}

uint64_t digest_of(const File& file) {
    uint64_t digest = file.size();
    for (const uint8_t byte : file) digest = standpipe::mix(digest, byte);
    return digest;
}

// Seconds of processor time that it took.
double run(const File& file, const Options& options) {
    std::snprintf(artifact, sizeof artifact, "%s%016llx", options.artifact_prefix.c_str(),
                  static_cast<unsigned long long>(digest_of(file)));
    running = &file;
    const double start_s = cpu_seconds();
    limit(options.timeout_s);
    LLVMFuzzerTestOneInput(file.data(), file.size());
    limit(0);
    if (peak_rss_mb() > options.rss_limit_mb) {
        say("driver: the process took more memory than -rss_limit_mb\n");
        std::abort();
    }
    running = nullptr;
    return cpu_seconds() - start_s;
}

bool value_of(const std::string& word, const char* name, std::string& value) {
    if (!word.starts_with(name)) return false;
    value = word.substr(std::strlen(name));
    return true;
}

Options parse(int count, char** words) {
    Options options;
    for (int i = 1; i < count; ++i) {
        const std::string word = words[i];
        std::string value;
        if (value_of(word, "-max_total_time=", value)) options.seconds = std::stod(value);
        else if (value_of(word, "-runs=", value)) options.runs = std::stoull(value);
        else if (value_of(word, "-seed=", value)) options.seed = std::stoull(value);
        else if (value_of(word, "-timeout=", value))
            options.timeout_s = static_cast<unsigned>(std::stoul(value));
        else if (value_of(word, "-rss_limit_mb=", value)) options.rss_limit_mb = std::stol(value);
        else if (value_of(word, "-artifact_prefix=", value)) options.artifact_prefix = value;
        else if (word.starts_with("-"))
            std::fprintf(stderr, "driver: %s is libFuzzer's alone\n", word.c_str());
        else options.seeds.push_back(word);
    }
    return options;
}

File bytes_of(const std::filesystem::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return File(std::istreambuf_iterator<char>(stream), {});
}

// Reads the seeds, in an order that doesn't depend on the file system.
std::vector<File> read_seeds(const std::vector<std::string>& names) {
    std::vector<std::filesystem::path> paths;
    for (const std::string& name : names) {
        if (!std::filesystem::is_directory(name)) {
            paths.emplace_back(name);
            continue;
        }
        for (const auto& entry : std::filesystem::recursive_directory_iterator(name))
            if (entry.is_regular_file()) paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    std::vector<File> files;
    for (const auto& path : paths) files.push_back(bytes_of(path));
    return files;
}

}  // namespace

int main(int count, char** words) {
    const Options options = parse(count, words);
    const std::vector<File> seeds = read_seeds(options.seeds);
    for (const int signal : {SIGABRT, SIGALRM, SIGPROF}) std::signal(signal, leave_input);
    if (!__asan_init)  // which catches these itself, and says more
        for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, leave_input);

    const auto start = Clock::now();
    uint64_t runs = 0;
    double slowest_s = 0;
    File slowest;
    const auto once = [&](const File& input) {
        ++runs;
        const double took_s = run(input, options);
        if (took_s <= slowest_s) return;
        slowest_s = took_s;
        slowest = input;
    };
    for (const File& seed : seeds) once(seed);
    standpipe::Draws draws(options.seed);
    File file;
    while (!seeds.empty() && runs < options.runs && seconds_since(start) < options.seconds) {
        file = seeds[draws.below(seeds.size())];
        standpipe::mutate(file, seeds[draws.below(seeds.size())], draws);
        once(file);
    }
    const double seconds = seconds_since(start);
    std::ofstream(options.artifact_prefix + "slowest", std::ios::binary)
        .write(reinterpret_cast<const char*>(slowest.data()), static_cast<std::streamsize>(slowest.size()));
    std::printf("driver: %llu runs in %.1f s, %.0f per second; slowest %.3f s; peak %ld MB\n",
                static_cast<unsigned long long>(runs), seconds, static_cast<double>(runs) / seconds,
                slowest_s, peak_rss_mb());
    return 0;
}
