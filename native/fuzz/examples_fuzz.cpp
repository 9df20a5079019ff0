// Fuzzes TFRecord files. Bytes of a feature must be inside of their record. Results mustn't depend on how
// much is read at once, or on checksums that are corrected.
#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "fuzz/harness.h"
#include "io/examples.h"
#include "system/checksum.h"

namespace standpipe {
namespace {

struct Taken {
    std::vector<int64_t> offsets, lengths, ints;
    std::vector<uint32_t> sums, floats;  // floats by their bits, as some are no numbers
    ExampleFault fault;
    uint64_t at;

    bool operator==(const Taken&) const = default;
};

template <typename To, typename From>
void append(std::vector<To>& to, const std::vector<From>& more) {
    for (const From value : more) to.push_back(std::bit_cast<To>(value));
}

Taken take(int file, uint64_t size, size_t most) {
    ExampleRecords records({"i", "n", "f"});
    records.begin(file, size);
    Taken taken{};
    for (bool more = true; more;) {
        more = records.take(most);
        const size_t count = records.sums().size();
        check(count <= most, "more was taken than asked for");
        append(taken.sums, records.sums());
        append(taken.offsets, records.offsets(0));
        append(taken.lengths, records.lengths(0));
        append(taken.ints, records.ints(1));
        append(taken.floats, records.floats(2));
        if (records.fault() != ExampleFault::none) break;  // columns may be longer than the records
        check(records.kind(0) != FeatureKind::bytes || records.offsets(0).size() == count,
              "bytes are missing");
        check(records.kind(1) != FeatureKind::ints || records.ints(1).size() == count * records.count(1),
              "integers are missing");
        for (const Feature& feature : records.features())
            check(feature.name.size() <= size && feature.values.size() <= size, "a feature is too long");
    }
    taken.fault = records.fault();
    taken.at = records.at();
    return taken;
}

void check_file(Bytes bytes) {
    const MemoryFile file(bytes);
    const Taken whole = take(file.get(), bytes.size(), 1 << 20);
    check(take(file.get(), bytes.size(), 1) == whole, "how much is asked for makes a difference");
    check(whole.at <= bytes.size(), "the fault lies outside of the file");
    uint64_t end = 0, begin = 0;
    for (size_t i = 0; i < whole.offsets.size(); ++i) {
        const auto at = static_cast<uint64_t>(whole.offsets[i]),
                   length = static_cast<uint64_t>(whole.lengths[i]);
        // A record has one place of bytes, and ends 4 bytes behind its data.
        begin = end;
        std::memcpy(&end, bytes.data() + begin, sizeof end);
        end += begin + 16;
        check(at >= begin + 12 && end <= bytes.size() && at + length <= end - 4,
              "bytes lie outside of their record");
    }
}

uint32_t masked(Bytes bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8; }

// Returns the file with lengths that fit, and right checksums.
std::vector<uint8_t> with_sums(Bytes file) {
    std::vector<uint8_t> made(file.begin(), file.end());
    for (uint64_t at = 0; at + 16 <= made.size();) {
        uint8_t* const record = made.data() + at;
        uint64_t length = 0;
        std::memcpy(&length, record, sizeof length);
        length = std::min<uint64_t>(length, made.size() - at - 16);
        std::memcpy(record, &length, sizeof length);
        const uint32_t of_length = masked({record, 8}), of_data = masked({record + 12, length});
        std::memcpy(record + 8, &of_length, sizeof of_length);
        std::memcpy(record + 12 + length, &of_data, sizeof of_data);
        at += length + 16;
    }
    return made;
}

}  // namespace
}  // namespace standpipe

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace standpipe;
    check_file({data, size});
    check_file(with_sums({data, size}));
    return 0;
}
