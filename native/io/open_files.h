// Files that stay open because samples are parts of them, within a limit of descriptors.
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

// An open file. It stays open while somebody holds it, also after `OpenFiles` has dropped it.
using SharedFile = std::shared_ptr<const Descriptor>;

// How many files a process may keep open for parts: a quarter of its limit of descriptors, from 1 to 1024.
size_t most_kept_open() noexcept;

// Keeps the files that were used last open. For any number of threads.
class OpenFiles {
  public:
    explicit OpenFiles(size_t most) : most_(most) {}

    // Returns the file at `path`, which `open` opens unless it is open; its descriptor is -1, with `errno`,
    // where that fails. Threads that ask for a file while another thread opens it wait for that one. Null
    // when this was closed meanwhile.
    //
    // anew: opens it in any case, and others get the new one from then on
    SharedFile get(const std::string& path, bool anew, const std::function<int()>& open);

    // Has the file opened again by whoever wants it next, unless it is another one by now.
    void drop(const std::string& path, const SharedFile& file) noexcept;

    // Closes all files that nobody reads now. False when there was none.
    bool drop_unused() noexcept;

    // Ends all waits, and keeps no file open any more.
    void close() noexcept;

  private:
    struct Entry {
        std::string path;
        SharedFile file;  // null while a thread opens it
    };
    using Entries = std::list<Entry>;

    void forget(Entries::iterator entry) noexcept;

    const size_t most_;
    std::mutex mutex_;  // of what follows
    std::condition_variable changed_;
    Entries entries_;  // used last first
    std::unordered_map<std::string_view, Entries::iterator> by_path_;
    bool closed_ = false;
};

}  // namespace standpipe
