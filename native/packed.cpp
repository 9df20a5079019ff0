#include "packed.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "faults.h"
#include "list_lines.h"

namespace standpipe {
namespace {

constexpr uint64_t kMostTogether = 64 << 10;  // bytes of one read, unless one piece is larger
constexpr uint64_t kWidestGap = 4 << 10;      // a page that nobody asked for costs less than a call

// Bytes of a file that are wanted, and by which of the caller's pieces.
struct Wanted {
    uint64_t begin;
    uint64_t end;
    size_t piece;
};

// Calls `use(piece, bytes)` for every wanted range, with few reads. Stops at the first fault.
template <typename Use>
PackedResult read_sorted(int file, std::vector<Wanted>& wanted, Use use) {
    std::sort(wanted.begin(), wanted.end(), [](const Wanted& a, const Wanted& b) {
        return a.begin != b.begin ? a.begin < b.begin : a.piece < b.piece;
    });
    std::vector<uint8_t> buffer;
    for (size_t first = 0; first < wanted.size();) {
        const uint64_t begin = wanted[first].begin;
        uint64_t end = wanted[first].end;
        size_t last = first + 1;
        for (; last < wanted.size() && wanted[last].begin <= end + kWidestGap; ++last) {
            const uint64_t further = std::max(end, wanted[last].end);
            if (further - begin > kMostTogether) break;
            end = further;
        }
        if (buffer.size() < end - begin) buffer.resize(end - begin);
        if (const Fault fault = faultpoint(Point::index_read, begin); fault.error)
            return {PackedFault::cant_read, fault.error, -1};
        for (uint64_t done = 0; done < end - begin;) {
            const ssize_t got =
                pread(file, buffer.data() + done, end - begin - done, static_cast<off_t>(begin + done));
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) return {PackedFault::cant_read, errno, -1};
            if (got == 0) return {PackedFault::too_short, 0, -1};
            done += static_cast<uint64_t>(got);
        }
        for (; first < last; ++first) {
            const Wanted& w = wanted[first];
            const PackedResult result =
                use(w.piece, std::span<const uint8_t>(buffer.data() + (w.begin - begin), w.end - w.begin));
            if (result.fault != PackedFault::none) return result;
        }
    }
    return {};
}

bool is_one_of(uint8_t byte, std::string_view set) noexcept {
    return set.find(static_cast<char>(byte)) != set.npos;
}

}  // namespace

PackedResult read_rows(const PackedRows& rows, std::span<const int64_t> indices, uint8_t* out) {
    std::vector<Wanted> wanted(indices.size());
    for (size_t i = 0; i < indices.size(); ++i) {
        const uint64_t begin = rows.begin + static_cast<uint64_t>(indices[i]) * rows.row_bytes;
        wanted[i] = {begin, begin + rows.row_bytes, i};
    }
    return read_sorted(rows.file, wanted, [&](size_t piece, std::span<const uint8_t> bytes) -> PackedResult {
        std::memcpy(out + piece * rows.row_bytes, bytes.data(), bytes.size());
        return {};
    });
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
        const uint64_t begin = text.begin + place_offset(found[i]), length = place_length(found[i]);
        if (length == 0 || begin + length > text.end) return {PackedFault::bad_place, 0, indices[i]};
        wanted[i] = {begin - (begin > text.begin), begin + length + (begin + length < text.end), i};
        starts[i + 1] = starts[i] + length;
    }
    std::vector<uint8_t> bare(starts.back());
    const PackedResult result =
        read_sorted(text.file, wanted, [&](size_t i, std::span<const uint8_t> bytes) -> PackedResult {
            const uint64_t begin = text.begin + place_offset(found[i]), length = place_length(found[i]);
            const size_t before = begin > text.begin;
            const bool starts_well = !before || is_one_of(bytes.front(), text.before);
            const bool ends_well = begin + length == text.end || is_one_of(bytes.back(), text.after);
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
