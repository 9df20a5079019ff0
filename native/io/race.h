// Reads a file once, or twice at the same time; the first read that succeeds gives the result.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

#include "io/reader.h"

namespace standpipe {

// The state that the thread which wants a read shares with those that read. `range` and `buffers` are
// constant; the rest changes under the lock.
struct Race {
    Race(const FileRange& r, std::shared_ptr<BufferPool> b) : range(r), buffers(std::move(b)) {}

    // Ends the race; the caller holds the lock. A thread that still reads continues until the system call
    // ends; its bytes are dropped then.
    void end(ReadResult with) {
        result = std::move(with);
        over = true;
        changed.notify_all();
    }

    const FileRange range;
    const std::shared_ptr<BufferPool> buffers;
    std::mutex mutex;
    std::condition_variable changed;
    int running = 0;     // reads
    bool waits = false;  // the first of them, for a buffer that others hold
    bool over = false;
    ReadResult result;
};

}  // namespace standpipe
