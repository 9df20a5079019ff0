#include "io/packed.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "io/list_lines.h"
#include "io/sealed.h"
#include "system/descriptor.h"
#include "system/faults.h"

namespace standpipe {
namespace {

constexpr uint64_t kMostTogether = 64 << 10;  // bytes of one read, unless one piece is larger
constexpr uint64_t kWidestGap = 4 << 10;      // a page that nobody asked for costs less than a call

// Data of a section that is wanted, and by which of the caller's pieces.
struct Wanted {
    uint64_t begin;
    uint64_t end;
    size_t piece;
};

// Reads data of a section into a buffer that it keeps for the next time.
class SectionReader {
  public:
    explicit SectionReader(const PackedSection& section) : section_(section) {}

    // The data [begin, end), not nothing, into `out`, which is there until the next read. Data without seals
    // goes to `place`, if there is one.
    PackedResult read(uint64_t begin, uint64_t end, std::span<const uint8_t>& out, uint8_t* place = nullptr) {
        if (end > section_.size) return {PackedFault::too_short, 0, -1};
        if (!section_.key) {
            if (!place) place = buffer_for(end - begin);
            out = {place, end - begin};
            return fill(section_.begin + begin, end - begin, place);
        }
        const uint64_t first = begin / kDataBytes, at = section_.begin + first * kBlockBytes;
        const uint64_t stop =
            std::min(blocks_for(end) * kBlockBytes, sealed_size(section_.size)) + section_.begin;
        if (const PackedResult result = fill(at, stop - at, buffer_for(stop - at));
            result.fault != PackedFault::none)
            return result;
        if (const auto block = unseal({buffer_.data(), stop - at}, *section_.key, first))
            return {PackedFault::damaged, 0, static_cast<int64_t>(at + *block * kBlockBytes)};
        out = {buffer_.data() + (begin - first * kDataBytes), end - begin};
        return {};
    }

    // The same of data without seals, if the system has it in memory; else false.
    bool read_cached(uint64_t begin, uint64_t end, std::span<const uint8_t>& out, uint8_t* place) {
        out = {place ? place : buffer_for(end - begin), end - begin};
        const struct iovec piece{const_cast<uint8_t*>(out.data()), out.size()};
        const auto at = static_cast<off_t>(section_.begin + begin);
        return end <= section_.size &&
               preadv2(section_.file, &piece, 1, at, RWF_NOWAIT) == static_cast<ssize_t>(out.size());
    }

  private:
    uint8_t* buffer_for(uint64_t size) {
        if (buffer_.size() < size) buffer_.resize(size);
        return buffer_.data();
    }

    PackedResult fill(uint64_t at, uint64_t size, uint8_t* out) {
        if (const Fault fault = faultpoint(Point::index_read, at); fault.error)
            return {PackedFault::cant_read, fault.error, -1};
        const ssize_t got = read_at(section_.file, {out, size}, static_cast<off_t>(at));
        if (got < 0) return {PackedFault::cant_read, errno, -1};
        return {static_cast<uint64_t>(got) < size ? PackedFault::too_short : PackedFault::none, 0, -1};
    }

    const PackedSection& section_;
    std::vector<uint8_t> buffer_;
};

// Pieces that one read takes: up to `last`, and the data [begin, end).
struct Together {
    size_t last;
    uint64_t begin, end;
};

Together together_from(size_t first, std::span<const Wanted> wanted) noexcept {
    Together read{first + 1, wanted[first].begin, wanted[first].end};
    for (; read.last < wanted.size() && wanted[read.last].begin <= read.end + kWidestGap; ++read.last) {
        const uint64_t further = std::max(read.end, wanted[read.last].end);
        if (further - read.begin > kMostTogether) break;
        read.end = further;
    }
    return read;
}

// Slow storage reads in parallel what it knows of.
void advise(const PackedSection& section, std::span<const Wanted> wanted, size_t first) noexcept {
    while (first < wanted.size()) {
        const auto [last, begin, end] = together_from(first, wanted);
        posix_fadvise(section.file, static_cast<off_t>(section.begin + begin),
                      static_cast<off_t>(end - begin), POSIX_FADV_WILLNEED);
        first = last;
    }
}

// Calls `use(piece, bytes)` for every wanted range, with few reads. Stops at the first fault. `rows`: where
// pieces of equal size may be read to, one after another.
template <typename Use>
PackedResult read_sorted(const PackedSection& section, std::vector<Wanted>& wanted, Use use,
                         uint8_t* rows = nullptr) {
    std::sort(wanted.begin(), wanted.end(), [](const Wanted& a, const Wanted& b) {
        return a.begin != b.begin ? a.begin < b.begin : a.piece < b.piece;
    });
    SectionReader reader(section);
    bool is_advised = section.key || has_faults();
    for (size_t first = 0; first < wanted.size();) {
        const auto [last, begin, end] = together_from(first, wanted);
        std::span<const uint8_t> together;
        uint8_t* const place =
            rows && last == first + 1 ? rows + wanted[first].piece * (end - begin) : nullptr;
        if (is_advised || !reader.read_cached(begin, end, together, place)) {
            if (!is_advised) advise(section, wanted, first);
            is_advised = true;
            const PackedResult result = reader.read(begin, end, together, place);
            if (result.fault != PackedFault::none) return result;
        }
        for (; first < last; ++first) {
            const Wanted& w = wanted[first];
            const PackedResult result = use(w.piece, together.subspan(w.begin - begin, w.end - w.begin));
            if (result.fault != PackedFault::none) return result;
        }
    }
    return {};
}

bool is_one_of(uint8_t byte, std::string_view set) noexcept {
    return set.find(static_cast<char>(byte)) != set.npos;
}

}  // namespace

PackedResult read_part(const PackedSection& section, uint64_t begin, std::span<uint8_t> out) {
    SectionReader reader(section);
    for (uint64_t done = 0; done < out.size();) {
        const uint64_t size = std::min<uint64_t>(out.size() - done, kMostTogether);
        std::span<const uint8_t> data;
        if (const PackedResult result = reader.read(begin + done, begin + done + size, data);
            result.fault != PackedFault::none)
            return result;
        std::copy(data.begin(), data.end(), out.begin() + static_cast<ptrdiff_t>(done));
        done += size;
    }
    return {};
}

PackedResult read_rows(const PackedRows& rows, std::span<const int64_t> indices, uint8_t* out) {
    std::vector<Wanted> wanted(indices.size());
    for (size_t i = 0; i < indices.size(); ++i) {
        const uint64_t begin = static_cast<uint64_t>(indices[i]) * rows.stride;
        wanted[i] = {begin, begin + rows.row_bytes, i};
    }
    return read_sorted(
        rows.section, wanted,
        [&](size_t piece, std::span<const uint8_t> bytes) -> PackedResult {
            if (uint8_t* const row = out + piece * rows.row_bytes; row != bytes.data())
                std::memcpy(row, bytes.data(), bytes.size());
            return {};
        },
        out);
}

PackedResult read_paths(const PackedRows& places, const PackedText& text, std::string_view base,
                        std::span<const int64_t> indices, std::vector<uint8_t>& blob,
                        std::span<int64_t> ends) {
    std::vector<uint64_t> found(indices.size());
    if (const PackedResult result = read_rows(places, indices, reinterpret_cast<uint8_t*>(found.data()));
        result.fault != PackedFault::none)
        return result;

    // One byte more on each side, where there is one, so that a path is known by its separators.
    std::vector<Wanted> wanted(indices.size());
    std::vector<uint64_t> starts(indices.size() + 1);  // of the paths without base, one after another
    for (size_t i = 0; i < indices.size(); ++i) {
        const uint64_t begin = place_offset(found[i]), end = begin + place_length(found[i]);
        if (end == begin || end > text.section.size) return {PackedFault::bad_place, 0, indices[i]};
        wanted[i] = {begin - (begin > 0), end + (end < text.section.size), i};
        starts[i + 1] = starts[i] + (end - begin);
    }
    std::vector<uint8_t> bare(starts.back());
    const PackedResult result =
        read_sorted(text.section, wanted, [&](size_t i, std::span<const uint8_t> bytes) -> PackedResult {
            const uint64_t begin = place_offset(found[i]), length = place_length(found[i]);
            const size_t before = begin > 0;
            const bool starts_well = !before || is_one_of(bytes.front(), text.before);
            const bool ends_well = begin + length == text.section.size || is_one_of(bytes.back(), text.after);
            const auto path = bytes.subspan(before, length);
            const std::string_view shown(reinterpret_cast<const char*>(path.data()), path.size());
            if (!starts_well || !ends_well || shown.find_first_of(text.never) != shown.npos)
                return {PackedFault::bad_path, 0, indices[i]};
            if (text.stays && leads_out(shown)) return {PackedFault::leads_out, 0, indices[i]};
            std::copy(path.begin(), path.end(), bare.begin() + static_cast<ptrdiff_t>(starts[i]));
            return {};
        });
    if (result.fault != PackedFault::none) return result;

    blob.clear();
    blob.reserve(bare.size() + indices.size() * base.size());
    for (size_t i = 0; i < indices.size(); ++i) {
        if (bare[starts[i]] != '/') blob.insert(blob.end(), base.begin(), base.end());
        blob.insert(blob.end(), bare.begin() + static_cast<ptrdiff_t>(starts[i]),
                    bare.begin() + static_cast<ptrdiff_t>(starts[i + 1]));
        ends[i] = static_cast<int64_t>(blob.size());
    }
    return {};
}

}  // namespace standpipe
