// Fuzzes tar shards. Members must be inside the shard and follow one another. Results mustn't depend on how
// much is read at once, or on checksums that are corrected. A member must be found again at its header.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "fuzz/harness.h"
#include "io/tar.h"
#include "io/tar_records.h"

namespace standpipe {
namespace {

struct Taken {
    std::vector<int64_t> offsets, lengths, labels, masks;
    std::vector<uint16_t> headers;
    std::vector<uint8_t> names, skipped;
    TarRecordFault fault;
    uint64_t fault_at;

    bool operator==(const Taken&) const = default;
};

template <typename Value>
void append(std::vector<Value>& to, const std::vector<Value>& more) {
    to.insert(to.end(), more.begin(), more.end());
}

Taken take(int file, uint64_t size, size_t most, bool masks) {
    std::vector<TarField> fields = {{{"jpg", "png"}, false}, {{"cls"}, true}};
    if (masks) fields.push_back({{"seg.png"}, false});
    TarRecords records(fields, {"cls2"}, {"pt"});
    records.begin(file, size);
    Taken taken{};
    for (bool more = true; more;) {
        more = records.take(most);
        check(records.headers().size() + records.num_skipped() <= most + 1, "more was taken than asked for");
        append(taken.offsets, records.offsets(0));
        append(taken.lengths, records.lengths(0));
        append(taken.labels, records.numbers(1));
        if (masks) append(taken.masks, records.offsets(2));
        append(taken.headers, records.headers());
        append(taken.names, records.names());
        append(taken.skipped, records.skipped());
    }
    taken.fault = records.fault();
    taken.fault_at = records.fault_at();
    const size_t count = taken.offsets.size();
    check(taken.labels.size() == count && taken.headers.size() == count, "a column is short");
    check(!masks || taken.masks.size() == count, "masks are missing");
    for (const auto& [later, first] : records.duplicates())
        check(0 <= first && first < later && later < static_cast<int64_t>(count),
              "a pair of records can't be duplicates");
    return taken;
}

void check_records(int file, uint64_t size, bool masks) {
    const Taken whole = take(file, size, 1 << 20, masks);
    check(take(file, size, 1, masks) == whole, "how much is asked for makes a difference");
    for (size_t i = 0; i < whole.offsets.size(); ++i) {
        const auto at = static_cast<uint64_t>(whole.offsets[i]),
                   length = static_cast<uint64_t>(whole.lengths[i]);
        check(at % kTarBlock == 0 && at <= size && length <= size - at, "an image lies outside of its shard");
        check(whole.headers[i] > 0 && whole.headers[i] * kTarBlock <= at, "headers lie outside of the shard");
    }
}

void check_members(int file, uint64_t size) {
    TarReader reader(file, size);
    uint64_t end = 0, count = 0;
    for (TarMember member; reader.next(member); ++count) {
        check(member.header >= end && member.header < member.data, "members don't follow one another");
        check(member.data <= size && member.size <= size - member.data, "a member lies outside of its shard");
        check(member.name.size() <= kLongestMemberName, "a name is too long");
        check(reader.content(member, 100).size() == std::min<uint64_t>(member.size, 100),
              "content is missing");
        end = member.data + member.size;
        TarReader again(file, size, member.header);
        TarMember same;
        // Without the global headers before it a member may be another one, or none.
        if (again.next(same)) check(same.header == member.header, "a member isn't found again");
    }
    check(count <= size / kTarBlock, "there are more members than headers");
    check(reader.fault_at() <= size, "the fault lies outside of the shard");
    TarMember none;
    check(!reader.next(none), "something follows the end");
}

void check_shard(Bytes shard) {
    const MemoryFile file(shard);
    check_members(file.get(), shard.size());
    for (const bool masks : {false, true}) check_records(file.get(), shard.size(), masks);
}

// Returns the shard with right checksums in every block, as if each was a header.
std::vector<uint8_t> with_sums(Bytes shard) {
    std::vector<uint8_t> made(shard.begin(), shard.end());
    for (size_t at = 0; at + kTarBlock <= made.size(); at += kTarBlock) {
        uint8_t* const block = made.data() + at;
        if (std::all_of(block, block + kTarBlock, [](uint8_t byte) { return byte == 0; })) continue;
        std::memset(block + 148, ' ', 8);
        unsigned sum = 0;
        for (size_t i = 0; i < kTarBlock; ++i) sum += block[i];
        char text[16];
        std::snprintf(text, sizeof text, "%06o", sum);
        std::memcpy(block + 148, text, 7);
    }
    return made;
}

}  // namespace
}  // namespace standpipe

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace standpipe;
    const Bytes input(data, size);
    check_shard(input);
    check_shard(with_sums(input));
    return 0;
}
