// Reads encoded samples. Retries errors that may pass, and starts a second read beside one that hangs.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>

#include "io/open_files.h"
#include "io/stamp.h"
#include "memory/buffers.h"
#include "system/helpers.h"

namespace standpipe {

// The bytes [offset, offset + length) of a regular file, or those up to its end for length < 0.
struct FileRange {
    std::string path;
    int64_t offset = 0;
    int64_t length = -1;
    uint64_t max_bytes = UINT64_MAX;  // cap on an encoded sample
    // The whole file's size and time when the range was noted, to see whether it has changed since; -1:
    // unknown.
    int64_t file_bytes = -1;
    int64_t mtime_ns = -1;
    int64_t crc32c = -1;  // of the range's bytes, to see whether they are still the same; -1: unknown

    // Returns whether this is a part of a file, of which other parts may be wanted too.
    bool is_part() const noexcept { return length >= 0; }
};

struct ReadResult {
    Buffer buffer;
    size_t size = 0;
    std::string error;       // empty: `size` bytes were read
    bool too_large = false;  // the error: above the range's cap
    double took_s = 0;       // in the system's hands, without waiting for a buffer
    // The seconds of `took_s` in which the thread waited for storage; 0 if it never gave up its core.
    double blocked_s = 0;
    Stamp stamp;          // of the file that was read
    bool closed = false;  // the error: close() has ended the read
};

ReadResult closed_result();

struct ReadPolicy {
    int retries = 3;          // tries after the first, when an error may pass
    double backoff_s = 0.05;  // before the second try; each later pause is twice as long, give or take a half
    double hedge_after_s = 0;  // until a read that the system hasn't answered gets a second one; 0: never
};

struct ReadStats {
    uint64_t retries = 0;
    uint64_t hedged = 0;   // reads that got a second one
    double slowest_s = 0;  // of all tries that have ended
    uint64_t opens = 0;    // files that were opened
    uint64_t ranges = 0;   // ranges that were read: neighbours that are read together are one
};

// The state that all tries of a reader share.
struct FileAccess {
    OpenFiles open_files{most_kept_open()};
    std::atomic<uint64_t> opens{0}, ranges{0};
};

// Limits for neighbours that are read together: their number, their bytes in all, and the bytes between two
// of them. An archive has headers and small members there.
constexpr size_t kMostTogether = 16;
constexpr int64_t kMostBytesTogether = 1 << 20;
constexpr int64_t kMostBetween = 32 << 10;

// A file as it is now, and how long the system took to say so.
struct Looked {
    bool found = false;
    Stamp stamp;
    double took_s = 0, blocked_s = 0;
};

Looked look_at(const std::string& path);

// The result of one or several tries.
struct Tried {
    ReadResult result;
    bool may_pass = false;  // the error, if the same is tried again
};

// The source of a read's buffer, and the pause before its next try.
class Terms {
  public:
    virtual Buffer lend(size_t bytes) = 0;   // empty if none is available
    virtual bool pause(double seconds) = 0;  // false when there is no use in another try

  protected:
    ~Terms() = default;
};

struct Race;

// Reads samples as a policy says. Thread-safe.
//
// If reads may be hedged, threads of the reader read, so that the caller can turn to a second read while the
// first is stuck in the system. The first read that succeeds gives the result; the bytes of the other are
// dropped. That read keeps its buffer until its system call ends.
class Reader : public std::enable_shared_from_this<Reader> {
  public:
    // hedged       lends the buffers of reads that may be hedged
    // most_hedged  bytes of the largest sample that may get a second read
    Reader(const ReadPolicy& policy, std::shared_ptr<BufferPool> hedged, uint64_t most_hedged);
    ~Reader();

    // Reads a range. `buffers`: for reads in the calling thread.
    ReadResult read(const FileRange& range, BufferPool& buffers);
    // Reads parts of one file that follow one another, at most kMostTogether. Returns for how many of the
    // first ones there were buffers; 0 if they must be read one by one.
    size_t read_together(std::span<const FileRange> ranges, BufferPool& buffers,
                         std::span<ReadResult> results);
    // Ends all waits: reads fail from now on. Returns false if some are still in a system call after
    // `patience`; these end by themselves.
    bool close(std::chrono::milliseconds patience);

    ReadStats stats() const { return {retries_, hedged_, slowest_s_, access_.opens, access_.ranges}; }

  private:
    class Alone;

    Tried tried(const FileRange& range, int attempt, Terms& terms);
    void note_slowest(double took_s) noexcept;
    std::optional<ReadResult> raced(const FileRange& range);
    bool enter(const std::shared_ptr<Race>& race, bool is_second);

    const ReadPolicy policy_;
    const std::shared_ptr<BufferPool> hedged_buffers_;
    const uint64_t most_hedged_;
    const std::shared_ptr<Helpers> helpers_;
    FileAccess access_;
    std::atomic<uint64_t> retries_{0}, hedged_{0};
    std::atomic<double> slowest_s_{0};
    std::mutex mutex_;  // guards the members below
    std::condition_variable ended_;
    std::unordered_set<Race*> races_;
    bool closed_ = false;
};

}  // namespace standpipe
