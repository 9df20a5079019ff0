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

// Returns another descriptor of the same open file. Throws std::system_error if the process can have no more.
SharedFile shared_copy_of(int file);

// The open extents of a set. An extent is opened when it is first read. At most kMostOpen are open at once,
// as a process has 1024 descriptors unless it asks for more.
class ReadExtents {
  public:
    static constexpr size_t kMostOpen = 256;

    explicit ReadExtents(int directory);

    void set_spill(int directory);
    // Returns the extent's file, or null and errno.
    SharedFile open(uint32_t number, bool spilled);
    // Returns whether an earlier read found that the extent can't be read. It isn't tried again then.
    bool is_gone(uint32_t number, bool spilled);
    // Marks an extent as one that can't be read.
    void lose(uint32_t number, bool spilled);
    // Marks all extents on the disk as ones that can't be read.
    void lose_spill();
    bool has_lost_spill() const noexcept { return spill_lost_; }
    // Drops what is known of the extent, as there is a new one of that number.
    void renew(uint32_t number, bool spilled);
    // Closes all files, which frees those that were removed. Files are opened again when they are read again.
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
