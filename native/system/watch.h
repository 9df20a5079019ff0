// Ends a worker process when the process that it works for ends.
#pragma once

namespace standpipe {

// Starts a thread, free of the GIL, that ends this process at once when `process` has ended, or when every
// write end of `pipe` is closed. Where the kernel has no pidfd, the pipe alone tells.
void end_with(int pipe, int process);

}  // namespace standpipe
