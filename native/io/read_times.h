// Measures how long reads of files take, without decoding.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "io/reader.h"

namespace standpipe {

struct ReadTimes {
    std::vector<double> took_s;  // of every read that succeeded, in the system's hands
    uint64_t bytes = 0;
    uint64_t blocked = 0;  // of these reads, those that storage made wait
    uint64_t failed = 0;
    std::string error;  // of one that failed
    uint64_t hung = 0;  // reads that had not ended when the others had
    double seconds = 0;
};

struct ReadTask {
    std::vector<FileRange> files;
    bool again = false;     // from the first, when all are read
    int threads = 1;        // that read at once
    double seconds = 1;     // after which no read begins
    double patience_s = 1;  // for those in flight then; they end by themselves
    size_t buffer_bytes = 16 << 20;
};

// Reads files one after another. `interrupted` is asked now and then whether to give up.
ReadTimes time_reads(ReadTask task, const ReadPolicy& policy, const std::function<bool()>& interrupted);

}  // namespace standpipe
