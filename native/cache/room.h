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

// Where a row's bytes go.
struct Place {
    Tier tier;
    uint32_t extent;
    uint64_t offset;
    SharedFile file;
};

// What a store wants of whoever gives it extents.
struct Wants {
    bool extent = false;               // whether it wants one
    uint64_t row_bytes = 0;            // of the largest row there was: less room than that is none
    bool skipped = false;              // whether a row wasn't stored for want of room
    bool memory = true, spill = true;  // in which tiers it takes some: not where writing failed
};

class CacheRoom {
  public:
    // Bytes [begin, end) of the file are free. False where it isn't wanted, since writing failed.
    bool add(Tier tier, uint32_t extent, SharedFile file, uint64_t begin, uint64_t end);
    void allow_spill();
    // Room in memory, else in the spill. None: nothing is left, or it is of no use.
    std::optional<Place> take(uint64_t bytes);
    // Nothing was written there. It is lost where others have taken what comes behind it.
    void give_back(const Place& place, uint64_t bytes);
    // A row of that place was written.
    void written(const Place& place);
    // Nothing more is to be written there.
    void end(Tier tier);
    // It couldn't be: that extent is full. One that is full without a row, or any other error: the tier is.
    void failed(const Place& place, int error);

    Wants wants() const;
    // Something other than room that should be told soon.
    void note();
    // Until another extent is wanted than when it last returned, something is to be told, the patience is
    // over or it is closed, which gives false.
    bool wait(std::chrono::milliseconds patience);
    void refuse();
    // The next row without room asks, although that was refused.
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
    bool due_ = true;     // for whoever waits
};

}  // namespace standpipe
