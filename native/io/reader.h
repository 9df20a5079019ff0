// Reading encoded samples: again where an error may pass, and a second time beside a read that hangs.
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
    // Of the whole file when the range was noted, to notice that it has changed since; -1: unknown.
    int64_t file_bytes = -1;
    int64_t mtime_ns = -1;

    // Whether it is a part of a file, of which others may be wanted too.
    bool is_part() const noexcept { return length >= 0; }
};

struct ReadResult {
    Buffer buffer;
    size_t size = 0;
    std::string error;       // empty: `size` bytes were read
    bool too_large = false;  // that is the error: for the range's cap
    double took_s = 0;       // in the system's hands, without waiting for a buffer
    // Of these, how long storage made the thread wait; 0 when it never gave up its core.
    double blocked_s = 0;
    Stamp stamp;          // of the file that was read
    bool closed = false;  // that is the error: a close has ended the read
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

// What all tries of a reader share.
struct FileAccess {
    OpenFiles open_files{most_kept_open()};
    std::atomic<uint64_t> opens{0}, ranges{0};
};

// Neighbours are read together up to so many, of so many bytes in all, with at most so many between two: an
// archive has headers and small members there.
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

// What became of a try, or of several.
struct Tried {
    ReadResult result;
    bool may_pass = false;  // the error, if the same is tried again
};

// Where a read gets its buffer, and how it waits for its next try.
class Terms {
  public:
    virtual Buffer lend(size_t bytes) = 0;   // an empty one when there is none to be had
    virtual bool pause(double seconds) = 0;  // false when there is no use in another try

  protected:
    ~Terms() = default;
};

struct Race;

// Reads samples as a policy says. Any number of threads at once.
//
// Where reads may be hedged, threads of its own read, so that whoever asked can turn to a second read while
// the first is stuck in the system. The first that succeeds wins; what the other one reads is dropped. It
// keeps its buffer until the system lets it go.
class Reader : public std::enable_shared_from_this<Reader> {
  public:
    // hedged       who lends the buffers of reads that may be hedged
    // most_hedged  bytes of a sample: a larger one has one read only
    Reader(const ReadPolicy& policy, std::shared_ptr<BufferPool> hedged, uint64_t most_hedged);
    ~Reader();

    // buffers: for reads in the thread that asks
    ReadResult read(const FileRange& range, BufferPool& buffers);
    // Reads parts of one file that lie one after another, at most kMostTogether. Returns how many, from the
    // first on, there were buffers for. 0 where they have to be read one by one.
    size_t read_together(std::span<const FileRange> ranges, BufferPool& buffers,
                         std::span<ReadResult> results);
    // Ends all waits: reads fail from now on. False when some were still in the system's hands after
    // `patience`: these end by themselves.
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
    std::mutex mutex_;  // of what follows
    std::condition_variable ended_;
    std::unordered_set<Race*> races_;
    bool closed_ = false;
};

}  // namespace standpipe
