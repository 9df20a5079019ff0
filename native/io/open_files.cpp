#include "io/open_files.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

namespace standpipe {
namespace {

constexpr size_t kMostKept = 1024;
constexpr size_t kPartOfLimit = 4;

}  // namespace

size_t most_kept_open() noexcept {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) return 1;
    return std::clamp<size_t>(files.rlim_cur / kPartOfLimit, 1, kMostKept);
}

void OpenFiles::forget(Entries::iterator entry) noexcept {
    by_path_.erase(entry->path);
    entries_.erase(entry);
}

SharedFile OpenFiles::get(const std::string& path, bool anew, const std::function<int()>& open) {
    Entries dropped;  // closed without the lock
    std::unique_lock lock(mutex_);
    if (!anew) {
        // Looked up again after each wait, as another thread may have opened it anew during the wait.
        const auto is_opening = [&] {
            const auto found = by_path_.find(path);
            return found != by_path_.end() && !found->second->file;
        };
        changed_.wait(lock, [&] { return closed_ || !is_opening(); });
    }
    if (closed_) return nullptr;
    if (const auto found = by_path_.find(path); found != by_path_.end()) {
        if (!anew) {
            entries_.splice(entries_.begin(), entries_, found->second);
            return found->second->file;
        }
        forget(found->second);
    }
    const auto file = std::make_shared<Descriptor>();
    entries_.push_front({path, nullptr});
    const Entry* const mine = &entries_.front();
    try {
        by_path_.emplace(mine->path, entries_.begin());
    } catch (...) {
        entries_.pop_front();
        throw;
    }
    lock.unlock();
    *file = Descriptor(open());
    const int error = errno;
    lock.lock();
    const auto found = by_path_.find(path);
    if (found != by_path_.end() && &*found->second == mine) {  // nobody has opened it anew
        if (*file && !closed_) found->second->file = file;
        else forget(found->second);
        for (auto last = entries_.end(); entries_.size() > most_ && last != entries_.begin();) {
            const auto entry = --last;
            if (!entry->file || entry->file == file) continue;
            ++last;
            by_path_.erase(entry->path);
            dropped.splice(dropped.end(), entries_, entry);
        }
    }
    changed_.notify_all();
    errno = error;
    return file;
}

void OpenFiles::drop(const std::string& path, const SharedFile& file) noexcept {
    std::scoped_lock lock(mutex_);
    const auto found = by_path_.find(path);
    if (file && found != by_path_.end() && found->second->file == file) forget(found->second);
}

bool OpenFiles::drop_unused() noexcept {
    std::scoped_lock lock(mutex_);
    const size_t before = entries_.size();
    for (auto entry = entries_.begin(); entry != entries_.end();) {
        const auto next = std::next(entry);
        if (entry->file && entry->file.use_count() == 1) forget(entry);
        entry = next;
    }
    return entries_.size() < before;
}

void OpenFiles::close() noexcept {
    std::scoped_lock lock(mutex_);
    closed_ = true;
    by_path_.clear();
    entries_.clear();
    changed_.notify_all();
}

}  // namespace standpipe
