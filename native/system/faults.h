// Fault points, at which tests make something fail. They also show in longer runs what a loader survives. A
// text says what happens where, such as
//     read.open=eio@0.01;read.pread=delay:5s@#17;worker.row=kill@3;read.bytes=corrupt*1;seed=7
// Without one, a point costs a load and a branch. CONTRIBUTING.md has the grammar and the points.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace standpipe {

enum class Point : int {
    read_open,
    read_stat,
    read_pread,
    read_bytes,
    decode_row,
    index_read,
    cache_read,
    cache_disk,
    cache_row,
    cache_entry,
    cache_entry_after,
    // Points in Python code:
    worker_row,
    worker_answer,
    server_fork,
    publish_before,
    publish_after,
    ledger_write,
    cache_create,
    cache_spill,
    cache_link,
    cache_extent,
    cache_destroy,
    cache_remove,
    cache_fold,
    pack_write,
    pack_publish_before,
    pack_publish_after,
};

// The fault that the code around a point has to act out. Pauses and ends of the process have happened before.
struct Fault {
    int error = 0;        // as if the system had said so: an errno
    bool cut = false;     // the file ends before what was asked for
    bool damage = false;  // what was read isn't what was written
    bool raises = false;  // Python code fails here
};

// Installs faults; once, before threads start. Throws std::invalid_argument for a text that can't be read.
void install_faults(std::string_view text);

// Returns by name how often this process has passed each point since then. It has all points from the start.
std::vector<std::pair<std::string_view, uint64_t>> fault_hits();

std::optional<Point> point_named(std::string_view name);

// A key for what has a name, such as a file.
uint64_t fault_key(std::string_view name) noexcept;

// Damages bytes, as `Fault::damage` asks for.
void damage(std::span<uint8_t> bytes) noexcept;

namespace detail {
extern std::atomic<bool> faults_installed;
Fault struck(Point point, uint64_t key, int attempt);
}  // namespace detail

inline bool has_faults() noexcept { return detail::faults_installed.load(std::memory_order_relaxed); }

// key      of what is at work: whether a share of all keys is struck depends on it, not on who does the work
// attempt  how often that was tried before
inline Fault faultpoint(Point point, uint64_t key, int attempt = 0) {
    if (!has_faults()) [[likely]]
        return {};
    return detail::struck(point, key, attempt);
}

}  // namespace standpipe
