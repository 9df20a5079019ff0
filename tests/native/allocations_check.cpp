// A small run of a pool, again and again, in which another allocation fails each time: the first, the second,
// … of all threads, and of libjpeg. Each run ends with an error or all rows, its threads end, and nothing
// stays lent. A row is right or fails with "out of memory".
//
//   allocations_check FOLDER FILE…    files that become rows; what is no JPEG is Pillow's, whose part a
//                                     thread plays here. Sets of the cache are made in the folder
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "fuzz/own_malloc.h"
#include "pool_parts.h"
#include "system/faults.h"

namespace standpipe {
namespace {

constexpr int kSide = 24;
constexpr auto kPatience = std::chrono::seconds(20);  // more is a hang
constexpr uint64_t kMostRuns = 20'000;
constexpr int kDifferent = 4;  // files; these come again and again

uint64_t failing = 0;                     // the number of the allocation
std::vector<std::vector<uint8_t>> right;  // slots of runs in which none failed

[[noreturn]] void fail(const char* what) {
    fail_allocation(0);
    std::fprintf(stderr, "allocations_check: allocation %llu: %s\n", static_cast<unsigned long long>(failing),
                 what);
    std::_Exit(1);
}

void check(bool right, const char* what) {
    if (!right) fail(what);
}

enum class Kept { nothing, files, images };

// Ways that rows take through the pool.
struct Way {
    const char* name;
    double hedge_after_s = 0;
    Kept kept = Kept::nothing;
};

// True once an error has ended a thread, which ends the run, as with a thread in Python.
std::atomic<bool> thread_ended{false};

void play(void (*part)(Pool&), Pool& pool) try { part(pool); } catch (const std::bad_alloc&) {
    thread_ended = true;
}

struct Run {
    Run(const Files& files, const Way& way)
        : slot(size_t{3} * kSide * kSide * static_cast<size_t>(files.rows())) {
        const auto rows = static_cast<size_t>(files.rows());
        job->program = program(kSide);
        job->inputs.resize(1);
        job->inputs.front().files = files.input();
        job->rows = files.rows();
        job->positions.resize(rows);
        job->outputs.push_back({slot.data(), job->program->format().row_bytes()});
        for (size_t row = 0; row < rows; ++row) records.push_back(static_cast<int64_t>(row % kDifferent));
    }

    // Throws what a call from Python would raise.
    void work(Pool& pool, Bell& bell) {
        pool.submit(job);
        const auto ends = std::chrono::steady_clock::now() + kPatience;
        for (uint64_t seen = 0; job->remaining > 0 && !pool.broken() && !thread_ended;) {
            seen = bell.wait_for(seen, std::chrono::milliseconds(50));
            check(std::chrono::steady_clock::now() < ends, "the job is never done");
        }
    }

    // Every row that is done is right, or has failed for want of memory.
    void check_rows() {
        const size_t row_bytes = job->program->format().row_bytes();
        std::vector<bool> failed(static_cast<size_t>(job->rows));
        for (const auto& [row, _, outcome] : job->failures) {
            check(outcome.text == kNoMemory, outcome.text.c_str());
            failed[static_cast<size_t>(row)] = true;
        }
        // Without memory for a JPEG's header, Pillow gets the row: its pixels are right too.
        const std::vector<uint8_t> by_pillow(row_bytes, kByPillow);
        for (size_t row = 0; row < failed.size(); ++row) {
            const uint8_t* const made = &slot[row * row_bytes];
            const auto is_in = [&](const std::vector<uint8_t>& run) {
                return std::memcmp(made, &run[row * row_bytes], row_bytes) == 0;
            };
            const bool is_right =
                std::ranges::any_of(right, is_in) || std::memcmp(made, by_pillow.data(), row_bytes) == 0;
            check(failed[row] || is_right, "a row is missing");
        }
    }

    std::vector<uint8_t> slot;
    std::vector<int64_t> records;
    const std::shared_ptr<Job> job = std::make_shared<Job>();
};

// Returns whether an allocation has failed.
bool run_once(const Files& files, const Way& way, const std::string& folder) {
    const auto bell = std::make_shared<Bell>();
    Run run(files, way);
    PoolOptions options;
    options.workers = 2;
    options.io_threads = 2;
    options.read_ahead_bytes = 4 << 20;
    options.reads.retries = 0;
    options.reads.hedge_after_s = way.hedge_after_s;

    std::shared_ptr<Pool> pool;
    std::vector<std::thread> others;
    others.reserve(1);
    const auto before = way.kept == Kept::images ? program(kSide + 8) : nullptr;
    thread_ended = false;
    bool raised = false;
    std::optional<EmptySet> set;
    if (way.kept == Kept::nothing) fail_allocation(failing);
    else set.emplace(folder, kDifferent);
    try {
        if (set) {
            fail_allocation(failing);
            run.job->cache = {set->open_store(), run.records.data(), before, true};
        }
        pool = std::make_shared<Pool>(options, bell);
        others.emplace_back([&pool] { play(play_pillow, *pool); });
        run.work(*pool, *bell);
    } catch (const std::bad_alloc&) {
        raised = true;
    } catch (const std::system_error&) {  // a thread can't be started
        raised = true;
    }
    const bool struck = fail_allocation(0);
    const auto broken = pool ? pool->broken() : std::nullopt;
    const bool ended = raised || broken || thread_ended;
    check(struck || !ended, "an error, and no allocation failed");
    if (broken) check(broken->error == kNoMemory, broken->error.c_str());
    if (pool) check(pool->close(kPatience), "threads don't end");
    for (std::thread& other : others) other.join();
    if (!pool) return struck;
    if (failing == 0) right.push_back(run.slot);
    if (!struck) check(run.job->failures.empty(), "a row failed, and no allocation did");
    if (!ended) run.check_rows();
    const PoolStats stats = pool->stats();
    check(stats.side_bytes == 0, "the side arena isn't given back");
    check(stats.read_ahead_bytes == 0 || ended, "buffers aren't given back");
    if (failing == 0 && way.kept != Kept::nothing)
        check(run.job->cache->store->stats().hits > 0, "no row was found in the cache");
    return struck;
}

void run_all(const Files& files, const Way& way, const std::string& folder) {
    failing = 0;
    check(!run_once(files, way, folder),
          "an allocation failed that shouldn't");  // what stays is there now
    do check(++failing < kMostRuns, "there is no end to it");
    while (run_once(files, way, folder));
    std::printf("%llu allocations, %s\n", static_cast<unsigned long long>(failing - 1), way.name);
}

}  // namespace
}  // namespace standpipe

int main(int count, char** arguments) {
    using namespace standpipe;
    install_faults(
        {{Point::read_pread, FaultRule::Action::delay, 0, 1e-3}});  // storage so slow that reading ahead pays
    const std::vector<std::string> paths(arguments + 2, arguments + count);
    const Files all(paths), few({paths.begin(), paths.begin() + 2 * kDifferent});
    check(has_own_malloc() && few.rows() == 2 * kDifferent, "no files, or another malloc");
    const std::string folder = arguments[1];
    run_all(all, {.name = "reads not hedged"}, folder);
    run_all(few, {.name = "reads hedged", .hedge_after_s = 5e-4}, folder);
    run_all(few, {.name = "files kept", .kept = Kept::files}, folder);
    run_all(few, {.name = "images kept", .kept = Kept::images}, folder);
    return 0;
}
