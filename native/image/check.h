// Checks whether image files can be read and decoded completely, to examine a data set before its use.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "image/jpeg.h"
#include "image/rows.h"
#include "io/reader.h"
#include "memory/side_arena.h"

namespace standpipe {

struct CheckPolicy {
    DecodeLimits limits;
    uint64_t side_bytes = 256 << 20;   // cap on memory for whole frames, over all threads
    uint64_t buffer_bytes = 16 << 20;  // of encoded files, over all threads
    ReadPolicy reads;
};

class FileChecks;

// A file that was checked. It holds its bytes, and the memory that was reserved, until it ends.
class CheckedFile {
  public:
    explicit CheckedFile(std::shared_ptr<FileChecks> checks);
    CheckedFile(const CheckedFile&) = delete;
    CheckedFile& operator=(const CheckedFile&) = delete;

    // Waits for memory for the frame of a file that Pillow decodes. Returns an error message, or none.
    std::string reserve(uint64_t frame_bytes);

    ReadResult read;
    Outcome outcome;

  private:
    const std::shared_ptr<FileChecks> checks_;
    SideArena::Part part_;
};

// Reads files and decodes them completely. Thread-safe.
class FileChecks : public std::enable_shared_from_this<FileChecks> {
  public:
    explicit FileChecks(const CheckPolicy& policy);

    std::unique_ptr<CheckedFile> check(FileRange range);

    // Ends all waits. Files that aren't decoded by then are Kind::cancelled.
    void close();

  private:
    friend class CheckedFile;
    uint64_t uncounted(const Buffer& buffer) const noexcept;
    Outcome decoded(const ReadResult& read);

    const CheckPolicy policy_;
    SideArena side_;
    const std::shared_ptr<BufferPool> buffers_;
    const std::shared_ptr<Reader> reader_;
    std::atomic<bool> closed_{false};
};

// A file's size and time of modification, to see later whether it has changed; -1 if unknown.
struct FileMark {
    int64_t size = -1, mtime_ns = -1;
};

FileMark mark_of(const std::string& path) noexcept;

}  // namespace standpipe
