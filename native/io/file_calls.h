// System calls for a file that is read. A fault point may replace their results.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>
#include <span>
#include <string>

namespace standpipe {

// Every call fails like the system call: with -1 and `errno`.
class FileCalls {
  public:
    // attempt: number of earlier tries
    FileCalls(const std::string& path, int attempt);

    int open() const noexcept;
    int examine(int file, struct stat& info) const noexcept;
    // Reads up to all of `out`. Returns the number of bytes.
    ssize_t read(int file, std::span<uint8_t> out, int64_t offset) const noexcept;
    // Reads into several pieces, one after another: all bytes of all pieces, or false.
    bool read_pieces(int file, std::span<const struct iovec> pieces, int64_t offset) const noexcept;
    // Changes bytes that were read, if a fault point says so.
    void harm(std::span<uint8_t> bytes) const noexcept;

  private:
    const std::string& path_;
    const int attempt_;
    const uint64_t key_;  // of the file, for fault points
};

// Returns whether a file seems to have the same bytes: the same inode, size and time of modification. A file
// without a name counts as unchanged, here and below: the trainer lends its parts, and they have checksums.
bool is_unchanged(const struct stat& before, const struct stat& after) noexcept;
// Returns whether the times at which the inodes were changed are equal, too.
bool same_inode_time(const struct stat& before, const struct stat& after) noexcept;

// Returns how long ago a file was changed. Ignores a time in the future, which another clock has set.
int64_t age_ns(const struct stat& info) noexcept;

// Returns how long to wait before another look, so that every later change gives the file another time than
// `info` has. After 0, none of its writes is under way. Only a file that was changed just now needs a wait.
int64_t left_to_settle_ns(int file, const struct stat& info) noexcept;

constexpr int64_t kSecond_ns = 1'000'000'000;
// The coarsest clocks of file systems tick every two seconds (FAT; ext3 and some servers every second).
constexpr int64_t kRacy_ns = 2 * kSecond_ns;

}  // namespace standpipe
