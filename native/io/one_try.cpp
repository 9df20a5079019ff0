#include "io/one_try.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "io/file_calls.h"
#include "io/storage_clock.h"
#include "system/checksum.h"

namespace standpipe {
namespace {

// A storage that restarts, a network that is down for a moment, a file server's old handle (which opening the
// file anew replaces), and what other processes or threads hold now.
bool may_pass(int error) noexcept {
    switch (error) {
        case EIO:
        case ESTALE:
        case EREMOTEIO:
        case ETIMEDOUT:
        case EAGAIN:
        case EBUSY:
        case ENETDOWN:
        case ENETUNREACH:
        case ENETRESET:
        case ECONNABORTED:
        case ECONNRESET:
        case ECONNREFUSED:
        case ENOTCONN:
        case EHOSTDOWN:
        case EHOSTUNREACH:
        case ENOMEM:
        case ENOBUFS:
        case EMFILE:
        case ENFILE: return true;
        default: return false;
    }
}

std::string system_text(const char* what, int error) {
    char room[128];
    std::string text = std::string(what) + ": " + strerror_r(error, room, sizeof room);
    struct rlimit files;
    if (error == EMFILE && getrlimit(RLIMIT_NOFILE, &files) == 0)
        text += ", of at most " + std::to_string(files.rlim_cur) +
                " (ulimit -n): raise the limit, or use fewer workers";
    return text;
}

std::string too_short(size_t bytes, size_t wanted) {
    return "truncated: file ends after " + std::to_string(bytes) + " of " + std::to_string(wanted) + " bytes";
}

// Returns an error message if a part is in another file than when its place was noted.
std::string check_version(const struct stat& info, const FileRange& range) {
    if (range.file_bytes >= 0 && info.st_size != range.file_bytes)
        return "the file has changed since it was indexed: it has " + std::to_string(info.st_size) +
               " bytes, and had " + std::to_string(range.file_bytes);
    if (range.mtime_ns >= 0 && ns_of(info.st_mtim) != range.mtime_ns)
        return "the file has changed since it was indexed: it was modified at another time";
    return {};
}

std::string check_extent(const struct stat& info, const FileRange& range, size_t& wanted) {
    if (!S_ISREG(info.st_mode)) return S_ISDIR(info.st_mode) ? "is a directory" : "is not a regular file";
    if (std::string text = check_version(info, range); !text.empty()) return text;
    const int64_t rest = std::max<int64_t>(info.st_size - range.offset, 0);
    if (range.length > rest) return too_short(static_cast<size_t>(rest), static_cast<size_t>(range.length));
    wanted = static_cast<size_t>(range.length < 0 ? rest : range.length);
    if (wanted > range.max_bytes)
        return "too large: " + std::to_string(wanted) +
               " encoded bytes are more than large_image_memory=" + std::to_string(range.max_bytes);
    return {};
}

// Returns an error message if the bytes aren't those of which the checksum was noted.
std::string check_bytes(std::span<const uint8_t> bytes, const FileRange& range) {
    if (range.crc32c < 0) return {};
    const uint32_t found = crc32c(bytes);
    if (found == range.crc32c) return {};
    char room[160];
    std::snprintf(room, sizeof room,
                  "damaged, or changed since it was indexed: the CRC-32C of its %zu bytes is %08x, and was "
                  "%08x",
                  bytes.size(), found, static_cast<uint32_t>(range.crc32c));
    return room;
}

// The file, opened if it isn't open; its descriptor is -1, with `errno`, where that fails. Null when the
// reader was closed.
SharedFile opened(const FileRange& range, int attempt, const FileCalls& calls, FileAccess& access) {
    const auto open = [&] {
        int file = calls.open();
        // There are none left: what is kept open can be opened again.
        if (file < 0 && (errno == EMFILE || errno == ENFILE) && access.open_files.drop_unused())
            file = calls.open();
        access.opens += file >= 0;
        return file;
    };
    if (range.is_part()) return access.open_files.get(range.path, attempt > 0, open);
    return std::make_shared<Descriptor>(open());
}

// One try at a range of a file.
class Try {
  public:
    Try(const FileRange& range, int attempt, FileAccess& access)
        : range_(range), attempt_(attempt), access_(access), calls_(range.path, attempt) {}

    Tried read(Terms& terms) {
        clock_.start();
        file_ = opened(range_, attempt_, calls_, access_);
        if (!file_) return {closed_result(), false};
        const int file = file_->get();
        if (file < 0) return refused("can't be opened");
        struct stat before;
        if (calls_.examine(file, before) != 0) return refused("can't be examined");
        if (!settle(file, before, terms)) return {closed_result(), false};
        const Stamp stamp = stamp_of(before);
        clock_.stop();
        size_t wanted = 0;
        if (std::string text = check_extent(before, range_, wanted); !text.empty()) {
            Tried tried = failed(std::move(text), false);
            tried.result.too_large = wanted > range_.max_bytes;
            return tried;
        }

        Buffer buffer = terms.lend(std::max<size_t>(wanted, 1));
        if (!buffer.data()) return failed("no memory for its " + std::to_string(wanted) + " bytes", true);
        const std::span<uint8_t> out(buffer.data(), wanted);
        clock_.start();
        ssize_t got = 0;
        // chmod, another name and what sets the old time after a write change the inode's time alone. Then
        // the file is read twice, and is what both times gave, or the second time without another change.
        for (std::optional<uint32_t> first; true;) {
            ++access_.ranges;
            got = calls_.read(file, out, range_.offset);
            if (got < 0) return refused("can't be read");
            struct stat after;
            if (calls_.examine(file, after) != 0) return refused("can't be examined");
            if (!is_unchanged(before, after)) return changed();
            if (same_inode_time(before, after)) break;
            const uint32_t bytes = checksum(out);
            if (first == bytes) break;
            if (first) return changed();
            first = bytes;
            before = after;
            if (!settle(file, before, terms)) return {closed_result(), false};
        }
        clock_.stop();
        if (static_cast<size_t>(got) < wanted)
            return failed(too_short(static_cast<size_t>(got), wanted), true);
        calls_.harm(out);
        if (std::string text = check_bytes(out, range_); !text.empty()) return failed(std::move(text), false);
        return {{std::move(buffer), wanted, {}, false, clock_.took_s(), clock_.blocked_s(), stamp}, false};
    }

  private:
    // False: the loader was closed.
    bool settle(int file, const struct stat& info, Terms& terms) {
        while (const int64_t left_ns = left_to_settle_ns(file, info)) {
            clock_.stop();
            if (!terms.pause(static_cast<double>(left_ns) * 1e-9)) return false;
            clock_.start();
        }
        return true;
    }

    // The system has just said no.
    Tried refused(const char* what) {
        const int error = errno;
        clock_.stop();
        if (range_.is_part()) access_.open_files.drop(range_.path, file_);
        return failed(system_text(what, error), may_pass(error));
    }

    Tried changed() {
        clock_.stop();
        return failed("changes while it is read; write another file beside it and rename that instead", true);
    }

    Tried failed(std::string text, bool passing) const {
        return {{{}, 0, std::move(text), false, clock_.took_s(), clock_.blocked_s()}, passing};
    }

    const FileRange& range_;
    const int attempt_;
    FileAccess& access_;
    const FileCalls calls_;
    SharedFile file_;
    StorageClock clock_;
};

}  // namespace

Tried try_once(const FileRange& range, int attempt, Terms& terms, FileAccess& access) {
    return Try(range, attempt, access).read(terms);
}

size_t try_together(std::span<const FileRange> ranges, BufferPool& buffers, std::span<ReadResult> results,
                    FileAccess& access) {
    const FileRange& first = ranges.front();
    const FileCalls calls(first.path, 0);
    StorageClock clock;
    clock.start();
    const SharedFile file = opened(first, 0, calls, access);
    struct stat before, after;
    if (!file || !*file || calls.examine(file->get(), before) != 0) return 0;
    const bool is_settled = left_to_settle_ns(file->get(), before) == 0;
    clock.stop();
    if (!is_settled) return 0;

    std::array<uint8_t, kMostBetween> between;  // what lies there is read and not used
    std::array<struct iovec, 2 * kMostTogether> pieces;
    size_t count = 0, num_pieces = 0;
    int64_t end = first.offset;
    for (const FileRange& range : ranges) {
        size_t wanted = 0;
        if (!check_extent(before, range, wanted).empty()) break;  // reading it alone says so
        const size_t bytes = std::max<size_t>(wanted, 1);
        Buffer buffer = count == 0 ? buffers.lend(bytes) : buffers.lend_now(bytes);
        if (!buffer.data()) break;
        if (range.offset > end)
            pieces[num_pieces++] = {between.data(), static_cast<size_t>(range.offset - end)};
        pieces[num_pieces++] = {buffer.data(), wanted};
        end = range.offset + range.length;
        results[count].buffer = std::move(buffer);
        results[count++].size = wanted;
    }
    if (count == 0) return 0;
    results = results.first(count);

    clock.start();
    ++access.ranges;
    const bool is_read = calls.read_pieces(file->get(), std::span(pieces).first(num_pieces), first.offset) &&
                         calls.examine(file->get(), after) == 0 && is_unchanged(before, after) &&
                         same_inode_time(before, after);
    clock.stop();
    if (!is_read) {  // the buffers are lent again
        for (ReadResult& result : results) result = {};
        return 0;
    }
    const auto parts = static_cast<double>(count);
    for (size_t i = 0; i < count; ++i) {
        ReadResult& result = results[i];
        result.took_s = clock.took_s() / parts;
        result.blocked_s = clock.blocked_s() / parts;
        result.stamp = stamp_of(before);
        const std::span<uint8_t> bytes(result.buffer.data(), result.size);
        calls.harm(bytes);
        result.error = check_bytes(bytes, ranges[i]);
    }
    return count;
}

}  // namespace standpipe
