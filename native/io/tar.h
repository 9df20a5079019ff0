// Reads the headers of uncompressed tar archives: of old tar, POSIX (ustar), GNU and pax. Members' data is
// skipped. Memory doesn't depend on what a header says.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "io/file_window.h"

namespace standpipe {

constexpr uint64_t kTarBlock = 512;
constexpr uint64_t kLongestMemberName = (1 << 16) - 1;
constexpr uint64_t kMostExtended = 1 << 20;                     // bytes of a long name or a pax header
constexpr uint64_t kMostPadding = 16 << 20;                     // bytes of zeros at the end
constexpr uint64_t kMostHeaders = ((1 << 16) - 1) * kTarBlock;  // bytes of all headers of a member

enum class TarFault : int {
    none = 0,
    cant_read,   // the system says no; `error()`
    compressed,  // by gzip, zstd, xz or bzip2
    not_tar,     // the first header isn't one
    bad_header,  // a later one isn't
    cut,         // the archive ends inside of a member or its headers
    no_end,      // the archive ends without the zeros that mark its end, and not behind a whole member
    more,        // something follows the zeros
    zeros,       // more zeros than the padding of an archive
    too_long,    // a name or an extended header is longer than allowed
    sparse,      // a member is stored without its holes
    volumes,     // the archive is a part of one in several volumes
};

struct TarMember {
    uint64_t header;        // first byte of its first header
    uint64_t data;          // first byte of its data
    uint64_t size;          // bytes of data
    bool regular;           // a file, not a folder, link or device
    bool link;              // another name of a file
    std::string_view name;  // there until the next member
};

class TarReader {
  public:
    // Reads the archive in the first `size` bytes of `file`, from the header at byte `at` on.
    TarReader(int file, uint64_t size, uint64_t at = 0);

    // Reads the next member. Returns false at the archive's end, and for a fault.
    bool next(TarMember& member);

    // Returns up to `most` bytes of the last member's data, valid until the next call; fewer for a fault.
    std::span<const uint8_t> content(const TarMember& member, uint64_t most);

    // Returns whether the archive ended after a whole member, without the zeros that mark its end.
    bool unmarked() const noexcept { return unmarked_; }

    TarFault fault() const noexcept { return fault_; }
    int error() const noexcept { return error_; }
    // The byte of the header with the fault, and the name of its member, as far as it is known.
    uint64_t fault_at() const noexcept { return at_; }
    const std::string& fault_name() const noexcept { return name_; }
    // The bytes that the member with the fault should have; 0 if that isn't known.
    uint64_t fault_size() const noexcept { return told_; }

  private:
    struct Pax {
        std::optional<std::string> path;
        std::optional<uint64_t> size;
        bool sparse = false;
    };

    bool fail(TarFault fault, int error = 0) noexcept;
    // The bytes [at, at + size), or what the file has of them; empty for a fault.
    std::span<const uint8_t> view(uint64_t at, uint64_t size);
    bool is_end();
    bool extended(uint64_t at, uint64_t size, std::span<const uint8_t>& text);
    bool read_pax(std::span<const uint8_t> text, Pax& pax);

    FileWindow window_;
    const uint64_t size_;
    uint64_t at_;  // of the next header; of the one with the fault
    const uint64_t begin_;
    Pax global_;
    std::string name_;
    bool unmarked_ = false;
    TarFault fault_ = TarFault::none;
    int error_ = 0;
    uint64_t told_ = 0;
};

}  // namespace standpipe
