// The extents that a process may fill with rows, and whether it needs more of them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cache/extents.h"

namespace standpipe {

enum class Tier { memory, spill };

// The place where a row's bytes are written.
struct Place {
    Tier tier;
    uint32_t extent;
    uint64_t offset;
    SharedFile file;
};

// The extents that a store asks for.
struct Wants {
    bool extent = false;               // whether it asks for one
    uint64_t row_bytes = 0;            // of the largest row there was: less room than that is none
    bool skipped = false;              // whether a row wasn't stored for want of room
    bool memory = true, spill = true;  // in which tiers it takes some: not where writing failed
};

class CacheRoom {
  public:
    // Adds bytes [begin, end) of a file, which are free. Returns false if writing to the tier has failed.
    bool add(Tier tier, uint32_t extent, SharedFile file, uint64_t begin, uint64_t end);
    void allow_spill();
    // Returns room in memory, else in the spill; nothing if there is none.
    std::optional<Place> take(uint64_t bytes);
    // Returns room to which nothing was written. It is lost if others have taken the bytes behind it.
    void give_back(const Place& place, uint64_t bytes);
    // Notes that a row was written to that place.
    void written(const Place& place);
    // Ends a tier: nothing more is written to it.
    void end(Tier tier);
    // Notes that writing failed: the extent counts as full. An extent that is full without a row, or any
    // other error, ends the tier.
    void failed(const Place& place, int error);

    Wants wants() const;
    // Notes that `wait` should report something other than room soon.
    void note();
    // Waits until an extent is wanted that wasn't when this last returned, something is to be reported, or
    // the patience is over. Returns false when this is closed.
    bool wait(std::chrono::milliseconds patience);
    void refuse();
    // Lets the next row without room ask again, although `refuse` was called.
    void ask_again();
    void close();

  private:
    struct Free {
        uint32_t extent;
        SharedFile file;
        uint64_t next, end;
        uint64_t left() const noexcept { return end - next; }
    };
    struct TierRoom {
        std::vector<Free> extents;
        int failures = 0;  // since a row was last written
        bool ended = false;
    };
    static constexpr size_t kMostExtents = 4;  // beyond these, the fullest is given up
    static constexpr int kMostFailures = 2;

    TierRoom& room(Tier tier) { return tiers_[static_cast<int>(tier)]; }
    std::optional<Place> take_from(Tier tier, uint64_t bytes);
    bool is_wanting() const;
    void ask();

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    TierRoom tiers_[2];
    bool spills_ = false, refused_ = false, closed_ = false;
    uint64_t granted_ = 0, row_bytes_ = 0;
    bool skipped_ = false;
    bool asked_ = false;  // since an extent was last given
    bool due_ = true;     // for threads in `wait`
};

}  // namespace standpipe
