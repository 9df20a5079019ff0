// Calls of the system for a file that is read, or what a fault point says instead of them.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>
#include <span>
#include <string>

namespace standpipe {

// Each call fails as the system's own does: with -1 and `errno`.
class FileCalls {
  public:
    // attempt: how many tries were before
    FileCalls(const std::string& path, int attempt);

    int open() const noexcept;
    int examine(int file, struct stat& info) const noexcept;
    // How many bytes there were, up to all of `out`.
    ssize_t read(int file, std::span<uint8_t> out, int64_t offset) const noexcept;
    // Reads into several pieces, one after another: all bytes of all pieces, or false.
    bool read_pieces(int file, std::span<const struct iovec> pieces, int64_t offset) const noexcept;
    // What a fault point does to bytes that were read.
    void harm(std::span<uint8_t> bytes) const noexcept;

  private:
    ssize_t read_some(int file, std::span<uint8_t> out, int64_t offset) const noexcept;

    const std::string& path_;
    const int attempt_;
    const uint64_t key_;  // of the file, for fault points
};

// Whether the bytes of a file are the same, unless the time at which its inode was changed is another one.
bool is_unchanged(const struct stat& before, const struct stat& after) noexcept;
bool same_inode_time(const struct stat& before, const struct stat& after) noexcept;

// How long ago a file was changed. Not what lies in the future, which another clock has set.
int64_t age_ns(const struct stat& info) noexcept;

// How long to wait before looking again: whatever changes the file must give it another time than `info` has.
// After 0 none of its writes goes on. Only a file that was changed just now takes any time.
int64_t left_to_settle_ns(int file, const struct stat& info) noexcept;

constexpr int64_t kSecond_ns = 1'000'000'000;
// The coarsest clocks of file systems tick every two seconds (FAT; ext3 and some servers every second).
constexpr int64_t kRacy_ns = 2 * kSecond_ns;

}  // namespace standpipe
