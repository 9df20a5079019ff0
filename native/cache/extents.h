// Reads the extents of a cache set: files in memory or on a disk, to which the bytes of rows were appended.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "system/descriptor.h"

namespace standpipe {

using SharedFile = std::shared_ptr<const Descriptor>;

// Another descriptor of the same open file. Throws std::system_error when there can be no more.
SharedFile shared_copy_of(int file);

// Opened when they are first asked for. At most so many are open at once: a process has 1024 descriptors
// unless it asks for more.
class ReadExtents {
  public:
    static constexpr size_t kMostOpen = 256;

    explicit ReadExtents(int directory);

    void set_spill(int directory);
    // Null, and errno, when it can't be had.
    SharedFile open(uint32_t number, bool spilled);
    // Whether it was found to be no file that can be read: it isn't tried again.
    bool is_gone(uint32_t number, bool spilled);
    // Likewise from now on.
    void lose(uint32_t number, bool spilled);
    // Likewise all on the disk.
    void lose_spill();
    bool has_lost_spill() const noexcept { return spill_lost_; }
    // There is a new one of that number.
    void renew(uint32_t number, bool spilled);
    // Lets go of all files: those that were destroyed are freed then. What is asked for again is opened
    // again.
    void close();

  private:
    const SharedFile directory_;
    std::mutex mutex_;
    SharedFile spill_;
    std::unordered_map<uint64_t, SharedFile> open_;
    std::vector<uint64_t> order_;  // of the keys that are open, the next to be closed at hand_
    size_t hand_ = 0;
    std::unordered_set<uint64_t> gone_;
    std::atomic<bool> any_gone_{false}, spill_lost_{false};
};

}  // namespace standpipe
