// Fault points, at which tests make something fail. They also show in longer runs what a loader survives.
// Python code reads STANDPIPE_FAULTS, whose rules say what happens where. Without rules, a point costs a load
// and a branch. CONTRIBUTING.md has the grammar and the points.
#pragma once

#include <atomic>
#include <climits>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace standpipe {

// The points of native code: the first ones of POINTS in standpipe/system/faults.py.
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
};
constexpr size_t kMostPoints = 64;  // of native and Python code

// The fault that the code around a point has to act out. Pauses and ends of the process have happened before.
struct Fault {
    int error = 0;        // as if the system had said so: an errno
    bool cut = false;     // the file ends before what was asked for
    bool damage = false;  // what was read isn't what was written
    bool raises = false;  // Python code fails here
};

// A fault of a point. Its conditions hold together.
struct FaultRule {
    // The order is that of ACTIONS in standpipe/system/faults.py.
    enum class Action : int { delay, kill, stop, exit, cut, damage, raise, error };

    Point point;
    Action action;
    int error = 0;
    double delay_s = 0;
    double share = 1;             // of all keys
    uint64_t hit = 0;             // the number of the pass, from 1; 0: any
    std::optional<uint64_t> key;  // the only one
    int tries = INT_MAX;          // of the same thing that are struck, from the first
    uint64_t salt = 0;            // the choice of the share
    std::string name;             // of point and action, for the log
};

// Installs rules; once, before threads start. `log`: the file that gets a line for each fault; empty for
// none.
void install_faults(std::vector<FaultRule> rules, std::string log = {});

// Returns how often this process has passed each point since then. It has all points from the start.
std::vector<uint64_t> fault_hits();

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
