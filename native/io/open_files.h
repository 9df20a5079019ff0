// Keeps files open from which samples are read in parts, within a limit of descriptors.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "system/descriptor.h"

namespace standpipe {

// An open file. It stays open while an object holds it, even after `OpenFiles` has dropped it.
using SharedFile = std::shared_ptr<const Descriptor>;

// Returns how many files a process may keep open for parts: a quarter of its limit of descriptors, from 1 to
// 1024.
size_t most_kept_open() noexcept;

// Keeps the most recently used files open. Thread-safe.
class OpenFiles {
  public:
    explicit OpenFiles(size_t most) : most_(most) {}

    // Returns the file at `path`, and calls `open` if it isn't open. If that fails, its descriptor is -1,
    // with `errno`. Threads that want a file while another thread opens it wait for that thread. Returns null
    // if this is closed during the wait.
    //
    // anew: opens the file in any case; later calls get the new one
    SharedFile get(const std::string& path, bool anew, const std::function<int()>& open);

    // Drops a file, so that the next call opens it again, unless another one has replaced it already.
    void drop(const std::string& path, const SharedFile& file) noexcept;

    // Closes all files that no thread reads now. Returns false if there was none.
    bool drop_unused() noexcept;

    // Ends all waits, and drops all files.
    void close() noexcept;

  private:
    struct Entry {
        std::string path;
        SharedFile file;  // null while a thread opens it
    };
    using Entries = std::list<Entry>;

    void forget(Entries::iterator entry) noexcept;

    const size_t most_;
    std::mutex mutex_;  // guards the members below
    std::condition_variable changed_;
    Entries entries_;  // used last first
    std::unordered_map<std::string_view, Entries::iterator> by_path_;
    bool closed_ = false;
};

}  // namespace standpipe
