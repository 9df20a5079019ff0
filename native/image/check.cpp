#include "image/check.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

namespace standpipe {
CheckedFile::CheckedFile(std::shared_ptr<FileChecks> checks)
    : checks_(std::move(checks)), part_(checks_->side_) {}

std::string CheckedFile::reserve(uint64_t frame_bytes) {
    const uint64_t bytes = frame_bytes + checks_->uncounted(read.buffer);
    if (!part_.fits(bytes)) return over_side_cap(part_.bytes() + bytes, checks_->side_.cap());
    return part_.add(bytes) ? std::string() : "the check was ended";
}

FileChecks::FileChecks(const CheckPolicy& policy)
    : policy_(policy),
      side_(policy.side_bytes),
      buffers_(std::make_shared<BufferPool>(policy.buffer_bytes)),
      reader_(std::make_shared<Reader>(policy.reads, buffers_, policy.buffer_bytes)) {}

// A file larger than all buffers is read when no other is in use; what it has too much is the side arena's.
uint64_t FileChecks::uncounted(const Buffer& buffer) const noexcept {
    return std::max<uint64_t>(buffer.capacity(), policy_.buffer_bytes) - policy_.buffer_bytes;
}

std::unique_ptr<CheckedFile> FileChecks::check(FileRange range) {
    range.max_bytes = std::max(policy_.side_bytes, policy_.buffer_bytes);
    auto file = std::make_unique<CheckedFile>(shared_from_this());
    file->read = reader_->read(range, *buffers_);
    if (closed_) file->outcome.kind = Outcome::Kind::cancelled;
    else if (!file->read.error.empty())
        file->outcome = {Outcome::Kind::read_error, false, std::move(file->read.error)};
    else file->outcome = decoded(file->read);
    return file;
}

Outcome FileChecks::decoded(const ReadResult& read) {
    const std::span<const uint8_t> bytes(read.buffer.data(), read.size);
    if (bytes.empty()) return Outcome::decode_error("empty file");
    if (!JpegImage::recognises(bytes)) return {Outcome::Kind::foreign, false, {}};
    try {
        SideArena::Part part(side_);
        JpegImage jpeg;  // ends before its memory counts as free
        if (std::string text = jpeg.open(bytes, policy_.limits); !text.empty())
            return Outcome::decode_error(std::move(text));
        const uint64_t needed = jpeg.frame_bytes() + not_kept(jpeg.row_bytes()) + uncounted(read.buffer);
        if (!part.fits(needed)) return Outcome::decode_error(over_side_cap(needed, side_.cap()));
        if (needed && !part.add(needed)) return {Outcome::Kind::cancelled, false, {}};
        if (std::string text = jpeg.parse(); !text.empty()) return Outcome::decode_error(std::move(text));
        return {Outcome::Kind::ok, jpeg.damaged(), {}, jpeg.truncated(), jpeg.smoothed_otherwise()};
    } catch (const std::bad_alloc&) {
        return Outcome::no_memory();
    }
}

void FileChecks::close() {
    closed_ = true;
    reader_->close(std::chrono::milliseconds(0));
    side_.close();
    buffers_->close();
}

FileMark mark_of(const std::string& path) noexcept {
    struct stat info;
    if (stat(path.c_str(), &info) != 0) return {};
    return {info.st_size, ns_of(info.st_mtim)};
}

}  // namespace standpipe
