// Pools under random loads: every kind of row, injected faults, workers that are employed, given up and
// cancelled, hedged reads, caches that spill, early closes. Every job ends, every row is right or has failed,
// and every thread ends. Built with TSan, which sees data races.
//
//   pool_stress FOLDER RUNS SEED FILE…    files that become rows; a file that isn't JPEG is decoded as if by
//   Pillow.
//                                         Sets of caches are made in the folder. Prints the seed of a run
//                                         that failed
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <list>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "pool_parts.h"
#include "system/faults.h"

namespace standpipe {
namespace {

constexpr int kSide = 12, kRecords = 40;
constexpr uint8_t kPoison = 0xa5;                     // of rows that nobody has written
constexpr auto kPatience = std::chrono::seconds(60);  // more is a hang

using Rows = std::vector<std::vector<uint8_t>>;

uint64_t seed = 0;  // of the present run
Rows in_one_go,
    in_two;  // a row of each file, made without faults; with a cache of images it's made in two steps

void check(bool right, const std::string& what) {
    if (right) return;
    std::fprintf(stderr, "pool_stress: seed %llu: %s\n", static_cast<unsigned long long>(seed), what.c_str());
    std::_Exit(1);
}

struct Random {
    bool chance(double p) { return std::bernoulli_distribution(p)(engine); }
    int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(engine); }
    std::mt19937_64 engine;
};

// Pictures in memory: picture i is of color i.
struct Pictures {
    static constexpr size_t kBytes = size_t{3} * 16 * 16;
    Pictures() : bytes(kRecords * kBytes) {
        for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i / kBytes);
    }
    std::vector<uint8_t> bytes;
};
const Pictures pictures;

enum class From { files, parts, pictures, copies };

// A job, with what it borrows, and what its rows may be.
struct Work {
    Work(Random& random, From source, const std::vector<std::string>& paths) : from(source) {
        const int rows = 1 + random.below(12);
        std::vector<std::string> chosen;
        for (int row = 0; row < rows; ++row) {
            const int record = random.below(
                from == From::files || from == From::parts ? static_cast<int>(paths.size()) : kRecords);
            records.push_back(record);
            if (from == From::files || from == From::parts)
                chosen.push_back(paths[static_cast<size_t>(record)]);
        }
        files.emplace(chosen);
        job->rows = rows;
        job->positions.resize(static_cast<size_t>(rows));
        if (from != From::copies) {
            job->program = program(kSide);
            row_bytes = job->program->format().row_bytes();
            job->inputs.resize(1);
        }
        slot.assign(static_cast<size_t>(rows) * row_bytes, kPoison);
        job->outputs.push_back({slot.data(), row_bytes});
        switch (from) {
            case From::parts:
                for (size_t row = 0; row < chosen.size(); ++row) {
                    struct stat found{};
                    check(stat(chosen[row].c_str(), &found) == 0, "no file");
                    files->length[row] = found.st_size;
                }
                [[fallthrough]];
            case From::files: job->inputs.front().files = files->input(); break;
            case From::pictures:
                job->inputs.front().pixels.push_back(
                    {pictures.bytes.data(), RecordsOfRows(records.data()), {16, 16}, 3});
                break;
            case From::copies:
                job->copies.push_back(
                    {pictures.bytes.data(), RecordsOfRows(records.data()), row_bytes, slot.data()});
                break;
        }
    }

    bool reads_files() const { return from == From::files || from == From::parts; }

    void check_rows() const {
        std::vector<bool> failed(static_cast<size_t>(job->rows));
        for (const auto& [row, input, outcome] : job->failures) failed[static_cast<size_t>(row)] = true;
        for (size_t row = 0; row < failed.size(); ++row) {
            if (failed[row]) continue;
            const auto made = std::span(slot).subspan(row * row_bytes, row_bytes);
            const auto is_all = [&](uint8_t byte) {
                return std::ranges::all_of(made, [&](uint8_t value) { return value == byte; });
            };
            const auto record = static_cast<size_t>(records[row]);
            const Rows& files_rows = job->keeps_images() ? in_two : in_one_go;
            const bool right = reads_files()
                                   ? std::ranges::equal(made, files_rows[record]) || is_all(kByPillow)
                                   : is_all(static_cast<uint8_t>(record));
            check(right, "row " + std::to_string(row) + " is wrong");
        }
    }

    From from;
    std::vector<int64_t> records;
    std::optional<Files> files;
    std::vector<uint8_t> slot;
    size_t row_bytes = Pictures::kBytes;
    const std::shared_ptr<Job> job = std::make_shared<Job>();
};

// A cache of a run, and what it stores: rows of files and of pictures need one each.
std::shared_ptr<CacheStore> random_store(Random& random, const std::string& folder, uint64_t records) {
    const std::string spill_folder = folder + "/spill";
    mkdir(spill_folder.c_str(), 0700);
    const EmptySet set(folder, records), spill(spill_folder, records);
    auto store = set.open_store(random.chance(0.5) ? 4096 : 1 << 20, random.chance(0.5) ? 0 : 1 << 20);
    store->set_spill(spill.directory.get());
    store->add_extent(0, spill.extent.get(), 0, uint64_t{1} << 20, true);
    return store;
}

// Makes what a cache of images stores.
std::shared_ptr<Program> before() { return program(kSide + 4); }

// Threads that Python would run.
class Others {
  public:
    explicit Others(Pool& pool) : pool_(pool) {}
    ~Others() {
        for (std::thread& thread : threads_) thread.join();
    }
    void start(void (*part)(Pool&)) {
        threads_.emplace_back([this, part] { part(pool_); });
    }

  private:
    Pool& pool_;
    std::list<std::thread> threads_;
};

void disturb(Random& random, Pool& pool, const std::list<Work>& works, int workers, Others& others) {
    if (random.chance(0.2)) pool.employ(1 + random.below(workers));
    if (random.chance(0.1)) pool.stats();
    if (random.chance(0.1)) {
        auto work = works.begin();
        std::advance(work, random.below(static_cast<int>(works.size())));
        pool.cancel(work->job);
    }
    if (!random.chance(0.1)) return;
    const std::vector<AtWork> rows = pool.at_work();
    if (rows.empty()) return;
    const AtWork& row = rows[static_cast<size_t>(random.below(static_cast<int>(rows.size())))];
    if (!pool.give_up(row)) return;
    if (row.kind == Heartbeat::Kind::pillow) others.start(play_pillow);
}

void run_once(const std::vector<std::string>& paths, const std::string& folder) {
    Random random{std::mt19937_64(seed)};
    const bool closes_early = random.chance(0.15);
    const int workers = 1 + random.below(4);
    PoolOptions options;
    options.workers = workers;
    options.io_threads = 1 + random.below(4);
    options.read_ahead_bytes = size_t{32 << 10} << random.below(6);
    options.reads.retries = random.below(2);
    options.reads.backoff_s = 1e-4;
    options.reads.hedge_after_s = random.chance(0.3) ? 5e-4 : 0;

    const auto bell = std::make_shared<Bell>();
    const auto pool = std::make_shared<Pool>(options, bell);
    std::list<Work> works;
    Others others(*pool);  // they end before the jobs, whose rows they may have
    others.start(play_pillow);
    std::shared_ptr<CacheStore> of_files, of_images;
    if (random.chance(0.4)) of_files = random_store(random, folder + "/files", paths.size());
    if (random.chance(0.4)) of_images = random_store(random, folder + "/images", paths.size());

    const auto ends = std::chrono::steady_clock::now() + kPatience;
    uint64_t seen = 0;
    const auto wait_until = [&](size_t most_open) {
        const auto open = [&] {
            return std::ranges::count_if(works, [](const Work& work) { return work.job->remaining > 0; });
        };
        while (static_cast<size_t>(open()) > most_open) {
            seen = bell->wait_for(seen, std::chrono::milliseconds(100));
            const auto broken = pool->broken();
            check(!broken, broken ? broken->error : "");
            check(std::chrono::steady_clock::now() < ends, "a job is never done");
        }
    };
    for (int left = 4 + random.below(12); left > 0; --left) {
        Work& work = works.emplace_back(random, static_cast<From>(random.below(4)), paths);
        if (work.from == From::files && of_files && random.chance(0.5))
            work.job->cache = {of_files, work.records.data(), nullptr, true};
        else if (work.from == From::files && of_images)
            work.job->cache = {of_images, work.records.data(), before(), true};
        pool->submit(work.job, random.chance(0.1));
        disturb(random, *pool, works, workers, others);
        wait_until(static_cast<size_t>(random.below(4)));
    }
    if (!closes_early) wait_until(0);
    check(pool->close(kPatience), "threads don't end");
    for (const auto& store : {of_files, of_images})
        if (store) check(store->close(kPatience), "a spill doesn't end");
    for (const Work& work : works)
        if (work.job->remaining == 0) work.check_rows();
}

// A row of each file, from a pool without faults.
Rows learned(const std::vector<std::string>& paths, bool in_two_steps) {
    const auto bell = std::make_shared<Bell>();
    const auto pool = std::make_shared<Pool>(PoolOptions{}, bell);
    Others others(*pool);
    others.start(play_pillow);
    const auto job = std::make_shared<Job>();
    const Files files(paths);
    const std::vector<int64_t> records(paths.size());
    job->program = program(kSide);
    if (in_two_steps) job->cache = {nullptr, records.data(), before(), true};
    job->inputs.resize(1);
    job->inputs.front().files = files.input();
    job->rows = files.rows();
    job->positions.resize(paths.size());
    const size_t row_bytes = job->program->format().row_bytes();
    std::vector<uint8_t> slot(paths.size() * row_bytes);
    job->outputs.push_back({slot.data(), row_bytes});
    pool->submit(job);
    for (uint64_t heard = 0; job->remaining > 0;) heard = bell->wait(heard);
    check(job->failures.empty(), "a file can't be decoded");
    Rows rows;
    for (size_t row = 0; row < paths.size(); ++row) {
        const auto made = std::span(slot).subspan(row * row_bytes, row_bytes);
        rows.emplace_back(made.begin(), made.end());
    }
    pool->close(kPatience);
    return rows;
}

}  // namespace
}  // namespace standpipe

int main(int count, char** arguments) {
    using namespace standpipe;
    check(count > 4, "usage: pool_stress FOLDER RUNS SEED FILE…");
    const std::string folder = arguments[1];
    const uint64_t runs = std::strtoull(arguments[2], nullptr, 10),
                   first = std::strtoull(arguments[3], nullptr, 10);
    const std::vector<std::string> paths(arguments + 4, arguments + count);
    for (const char* name : {"", "/files", "/images"}) mkdir((folder + name).c_str(), 0700);
    in_one_go = learned(paths, false);
    in_two = learned(paths, true);
    using enum FaultRule::Action;
    install_faults({
        {.point = Point::read_pread, .action = delay, .delay_s = 500e-6, .share = 0.5, .salt = 1},
        {.point = Point::read_open, .action = delay, .delay_s = 1e-3, .share = 0.1, .salt = 2},
        {.point = Point::read_open, .action = error, .error = EIO, .share = 0.03, .tries = 1, .salt = 3},
        {.point = Point::read_stat, .action = error, .error = EIO, .share = 0.03, .tries = 1, .salt = 4},
        {.point = Point::read_pread, .action = cut, .share = 0.03, .salt = 5},
        {.point = Point::read_bytes, .action = damage, .share = 0.03, .salt = 6},
        {.point = Point::decode_row, .action = delay, .delay_s = 300e-6, .share = 0.1, .salt = 7},
        {.point = Point::cache_read, .action = error, .error = EIO, .share = 0.03, .salt = 8},
        {.point = Point::cache_read, .action = damage, .share = 0.03, .salt = 9},
        {.point = Point::cache_disk, .action = error, .error = EIO, .share = 0.03, .salt = 10},
        {.point = Point::cache_row, .action = cut, .share = 0.03, .salt = 11},
        {.point = Point::cache_entry, .action = error, .error = EIO, .share = 0.03, .salt = 12},
    });
    for (seed = first; seed < first + runs; ++seed) run_once(paths, folder);
    std::printf("%llu runs\n", static_cast<unsigned long long>(runs));
    return 0;
}
