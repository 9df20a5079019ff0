#include "io/examples.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "system/checksum.h"

namespace standpipe {
namespace {

using Bytes = std::span<const uint8_t>;

constexpr uint64_t kWindow = 1 << 20;
constexpr uint64_t kHead = 12, kTail = 4;  // a record's length and its CRC; the CRC of the data
constexpr unsigned kVarint = 0, kFixed64 = 1, kMessage = 2, kFixed32 = 5;  // protobuf's wire types

// TFRecord and protobuf are little-endian.
static_assert(std::endian::native == std::endian::little);
template <typename Value>
Value value_at(const uint8_t* at) noexcept {
    Value value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

uint32_t masked_crc(Bytes bytes) noexcept { return std::rotr(crc32c(bytes), 15) + 0xa282ead8; }

bool is_compressed(Bytes head) noexcept {
    if (head.size() < 2) return false;
    const bool gzip = head[0] == 0x1f && head[1] == 0x8b;
    const bool zlib = (head[0] & 0x0f) == 8 && head[0] <= 0x78 && (head[0] << 8 | head[1]) % 31 == 0;
    return gzip || zlib;
}

// A field of a protobuf message: its number, its wire type, and its bytes or, of a varint, its value.
struct Field {
    uint64_t number;
    unsigned type;
    Bytes bytes;
    uint64_t value;

    bool is_message(uint64_t of) const noexcept { return number == of && type == kMessage; }
};

// The fields of a protobuf message, one after another.
class Message {
  public:
    explicit Message(Bytes bytes) : rest_(bytes) {}

    // Reads the next field. Returns false at the end, and where the bytes are no message.
    bool next(Field& field) noexcept {
        uint64_t tag = 0, size = 0;
        if (rest_.empty() || is_bad_ || !varint(tag)) return false;
        field = {tag >> 3, static_cast<unsigned>(tag & 7), {}, 0};
        if (field.number == 0) return !(is_bad_ = true);
        switch (field.type) {
            case kVarint: return varint(field.value);
            case kFixed64: size = 8; break;
            case kFixed32: size = 4; break;
            case kMessage:
                if (!varint(size)) return false;
                break;
            default: is_bad_ = true;  // groups, which these messages don't have
        }
        if (is_bad_ || size > rest_.size()) return !(is_bad_ = true);
        field.bytes = rest_.first(size);
        rest_ = rest_.subspan(size);
        return true;
    }

    bool varint(uint64_t& value) noexcept {
        value = 0;
        for (unsigned i = 0; i < 10 && i < rest_.size(); ++i) {
            value |= static_cast<uint64_t>(rest_[i] & 0x7f) << (7 * i);
            if (rest_[i] < 0x80) {
                rest_ = rest_.subspan(i + 1);
                return true;
            }
        }
        return !(is_bad_ = true);
    }

    bool at_end() const noexcept { return rest_.empty(); }
    bool is_bad() const noexcept { return is_bad_; }

  private:
    Bytes rest_;
    bool is_bad_ = false;
};

// Reads an entry of the map from names to features. What protobuf would merge, a feature of two parts, is
// refused.
bool read_entry(Bytes bytes, Feature& feature) noexcept {
    feature = {};
    Bytes value;
    bool has_value = false;
    Message entry(bytes);
    for (Field field; entry.next(field);) {
        if (field.is_message(1))
            feature.name = {reinterpret_cast<const char*>(field.bytes.data()), field.bytes.size()};
        if (!field.is_message(2)) continue;
        if (has_value) return false;
        has_value = true;
        value = field.bytes;
    }
    Message kinds(value);
    for (Field field; kinds.next(field);) {
        if (field.type != kMessage || field.number > 3) continue;
        if (feature.kind != FeatureKind::none) return false;
        feature.kind = static_cast<FeatureKind>(field.number);
        feature.values = field.bytes;
    }
    return !entry.is_bad() && !kinds.is_bad();
}

bool read_features(Bytes record, std::vector<Feature>& features) {
    features.clear();
    Message example(record);
    for (Field each; example.next(each);) {
        if (!each.is_message(1)) continue;
        Message map(each.bytes);
        for (Field entry; map.next(entry);) {
            if (!entry.is_message(1)) continue;
            if (!read_entry(entry.bytes, features.emplace_back())) return false;
        }
        if (map.is_bad()) return false;
    }
    return !example.is_bad();
}

// Appends the values of a list, packed or not.
bool read_floats(Bytes list, std::vector<float>& values) {
    Message message(list);
    for (Field field; message.next(field);) {
        if (field.number != 1 || (field.type != kMessage && field.type != kFixed32)) continue;
        if (field.bytes.size() % sizeof(float)) return false;
        for (size_t at = 0; at < field.bytes.size(); at += sizeof(float))
            values.push_back(value_at<float>(field.bytes.data() + at));
    }
    return !message.is_bad();
}

bool read_ints(Bytes list, std::vector<int64_t>& values) {
    Message message(list);
    for (Field field; message.next(field);) {
        if (field.number != 1) continue;
        if (field.type == kVarint) values.push_back(static_cast<int64_t>(field.value));
        if (field.type != kMessage) continue;
        Message packed(field.bytes);
        while (!packed.at_end()) {
            uint64_t value = 0;
            if (!packed.varint(value)) return false;
            values.push_back(static_cast<int64_t>(value));
        }
    }
    return !message.is_bad();
}

// Finds the only value of a list of bytes; returns whether the list is a message.
bool read_bytes(Bytes list, Bytes& value, size_t& count) noexcept {
    Message message(list);
    count = 0;
    for (Field field; message.next(field);) {
        if (!field.is_message(1)) continue;
        value = field.bytes;
        ++count;
    }
    return !message.is_bad();
}

}  // namespace

ExampleRecords::ExampleRecords(std::vector<std::string> names)
    : names_(std::move(names)), columns_(names_.size()), window_(kWindow) {}

void ExampleRecords::begin(int file, uint64_t size) {
    window_.begin(file, size);
    size_ = size;
    at_ = record_ = 0;
    features_.clear();
}

bool ExampleRecords::fail(ExampleFault fault, size_t field) noexcept {
    fault_ = fault;
    fault_field_ = field;
    return false;
}

bool ExampleRecords::take(size_t most, const std::function<bool()>& stops) {
    sums_.clear();
    for (Column& column : columns_) {
        column.offsets.clear();
        column.lengths.clear();
        column.ints.clear();
        column.floats.clear();
    }
    while (fault_ == ExampleFault::none && at_ < size_ && sums_.size() < most && !stops())
        if (!next()) return false;
    return fault_ == ExampleFault::none && at_ < size_;
}

// Reads a record.
bool ExampleRecords::next() {
    features_.clear();  // their names are in the window
    const Bytes head = window_.view(at_, std::min(kHead, size_ - at_));
    if (window_.error()) return fail(ExampleFault::cant_read);
    const bool is_whole = head.size() == kHead;
    if (!is_whole || value_at<uint32_t>(head.data() + 8) != masked_crc(head.first(8)))
        return fail(at_ == 0 && is_compressed(head) ? ExampleFault::compressed
                    : !is_whole                     ? ExampleFault::cut
                    : at_ == 0                      ? ExampleFault::not_records
                                                    : ExampleFault::bad_length);
    const auto length = value_at<uint64_t>(head.data());
    if (size_ - at_ < kHead + kTail || length > size_ - at_ - kHead - kTail) return fail(ExampleFault::cut);
    if (length > kMostExampleBytes) return fail(ExampleFault::too_long);
    const Bytes body = window_.view(at_ + kHead, length + kTail);
    if (window_.error()) return fail(ExampleFault::cant_read);
    if (body.size() < length + kTail) return fail(ExampleFault::cut);
    const Bytes record = body.first(length);
    const auto sum = value_at<uint32_t>(body.data() + length);
    if (sum != masked_crc(record)) return fail(ExampleFault::bad_data);
    if (!read_features(record, features_)) return fail(ExampleFault::no_example);
    if (!add(record)) return false;
    sums_.push_back(sum);
    at_ += kHead + length + kTail;
    ++record_;
    return true;
}

bool ExampleRecords::add(Bytes record) {
    for (size_t field = 0; field < names_.size(); ++field) {
        // Of entries with the same name, protobuf takes the last.
        const auto found = std::find_if(features_.rbegin(), features_.rend(), [&](const Feature& feature) {
            return feature.name == names_[field];
        });
        if (found == features_.rend() || found->kind == FeatureKind::none)
            return fail(ExampleFault::missing, field);
        if (!put(field, *found, record)) return false;
    }
    return true;
}

bool ExampleRecords::put(size_t field, const Feature& feature, Bytes record) {
    Column& column = columns_[field];
    const bool is_first = column.kind == FeatureKind::none;
    if (!is_first && feature.kind != column.kind) return fail(ExampleFault::kind, field);
    size_t count = 0;
    bool is_list = false;
    if (feature.kind == FeatureKind::bytes) {
        Bytes value;
        is_list = read_bytes(feature.values, value, count);
        if (is_list && count > 1) return fail(ExampleFault::count, field);
        if (count == 1) {
            column.offsets.push_back(static_cast<int64_t>(at_ + kHead) + (value.data() - record.data()));
            column.lengths.push_back(static_cast<int64_t>(value.size()));
        }
    } else if (feature.kind == FeatureKind::floats) {
        const size_t before = column.floats.size();
        is_list = read_floats(feature.values, column.floats);
        count = column.floats.size() - before;
    } else {
        const size_t before = column.ints.size();
        is_list = read_ints(feature.values, column.ints);
        count = column.ints.size() - before;
    }
    if (!is_list) return fail(ExampleFault::no_example);
    if (count == 0) return fail(ExampleFault::missing, field);
    if (!is_first && count != column.count) return fail(ExampleFault::count, field);
    column.kind = feature.kind;
    column.count = count;
    return true;
}

}  // namespace standpipe
