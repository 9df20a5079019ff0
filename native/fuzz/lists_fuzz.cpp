// Fuzzes file lists, and the places of an index. Chunks must change nothing, results must be inside the list,
// and places that lead nowhere must be an error.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "fuzz/harness.h"
#include "io/list_lines.h"
#include "io/packed.h"
#include "io/sealed.h"

namespace standpipe {
namespace {

struct Taken {
    std::vector<uint64_t> places;
    std::vector<int64_t> labels;
    std::vector<uint8_t> paths;
    std::vector<std::string> names;
    LineFault fault;
    int64_t line, leads_out;

    bool operator==(const Taken&) const = default;
};

// The list in chunks that grow by `step` bytes; 0: at once. Each chunk is a copy of its own, so that reading
// beyond it shows.
Taken take(Bytes list, bool labels, size_t step) {
    ListLines lines(labels, {".a", ".jpg"});
    Taken taken{};
    for (size_t at = 0, end = step ? 0 : list.size();;) {
        end = std::min(end + step, list.size());
        const std::vector<uint8_t> chunk(list.begin() + static_cast<ptrdiff_t>(at),
                                         list.begin() + static_cast<ptrdiff_t>(end));
        const size_t used = lines.take(chunk, at, end == list.size());
        check(used <= chunk.size(), "more was taken than there is");
        at += used;
        taken.places.insert(taken.places.end(), lines.places().begin(), lines.places().end());
        taken.labels.insert(taken.labels.end(), lines.labels().begin(), lines.labels().end());
        taken.paths.insert(taken.paths.end(), lines.paths().begin(), lines.paths().end());
        if (end == list.size() || lines.fault() != LineFault::none) break;
    }
    taken.names = lines.names();
    taken.leads_out = lines.line_that_leads_out();
    taken.fault = lines.fault();
    taken.line = lines.fault() == LineFault::none ? 0 : lines.fault_line();
    return taken;
}

PackedResult paths_of(Bytes list, Bytes places, size_t count, bool stays, std::vector<uint8_t>& blob) {
    constexpr uint64_t kKey = 7;  // any: places are in sealed blocks, the text is the list as it is
    std::vector<uint8_t> blocks(sealed_size(places.size()));
    seal(places, kKey, 0, blocks);
    const MemoryFile text(list), index(blocks);
    std::vector<int64_t> indices(count), ends(count);
    for (size_t i = 0; i < count; ++i) indices[i] = static_cast<int64_t>(count - 1 - i);
    const PackedText of{{text.get(), 0, list.size(), {}},
                        "\n",
                        std::string_view("\n\r \t"),
                        std::string_view("\n\0", 2),
                        stays};
    const PackedRows rows{{index.get(), 0, places.size(), kKey}, 8, 8};
    const PackedResult result = read_paths(rows, of, "/base/", indices, blob, ends);
    if (result.fault == PackedFault::none && count)
        check(ends.back() == static_cast<int64_t>(blob.size()), "ends don't end");
    return result;
}

void check_list(Bytes list, bool labels) {
    const Taken whole = take(list, labels, 0);
    for (const size_t step : {1, 7, 64}) check(take(list, labels, step) == whole, "chunks make a difference");
    check(whole.labels.empty() || whole.labels.size() == whole.places.size(), "labels are missing");
    size_t at = 0;
    for (const uint64_t place : whole.places) {
        const uint64_t offset = place_offset(place), length = place_length(place);
        check(length > 0 && offset + length <= list.size(), "a path lies outside the list");
        check(at + length <= whole.paths.size() &&
                  std::memcmp(whole.paths.data() + at, list.data() + offset, length) == 0,
              "a path isn't what its place says");
        at += length;
    }
    check(at == whole.paths.size(), "paths without a place");
    if (whole.fault != LineFault::none) return;
    std::vector<uint8_t> blob;
    const Bytes places(reinterpret_cast<const uint8_t*>(whole.places.data()), 8 * whole.places.size());
    const PackedFault anywhere = paths_of(list, places, whole.places.size(), false, blob).fault,
                      below = paths_of(list, places, whole.places.size(), true, blob).fault;
    check(anywhere == PackedFault::none, "a path isn't found");
    check(below == (whole.leads_out ? PackedFault::leads_out : PackedFault::none),
          "a path leads out of its folder, or is said to");
}

}  // namespace
}  // namespace standpipe

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace standpipe;
    const Bytes input(data, size);
    for (const bool labels : {true, false}) check_list(input, labels);
    // The first half as the places of an index over the second one, and one place more than there is.
    std::vector<uint8_t> blob;
    const size_t count = size / 16;
    (void)paths_of(input.subspan(size - size / 2), input.first(count * 8), count, false, blob);
    check(paths_of(input, input.first(count * 8), count + 1, false, blob).fault != PackedFault::none,
          "a place behind the end was read");
    return 0;
}
