// Reads TFRecord files whose records are messages `tf.train.Example`: lengths and CRC-32Cs are checked, and
// of protobuf's format as much is read as these messages need. `TFRecords` in Python says what a record may
// have.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/file_window.h"

namespace standpipe {

constexpr uint64_t kMostExampleBytes = 1 << 30;

enum class FeatureKind : int { none = 0, bytes, floats, ints };  // as Feature's fields are numbered

struct Feature {
    std::string_view name;
    FeatureKind kind;
    std::span<const uint8_t> values;  // the message BytesList, FloatList or Int64List
};

enum class ExampleFault : int {
    none = 0,
    cant_read,    // the system says no; `error()`
    compressed,   // by gzip or zlib
    not_records,  // the file doesn't begin with a record
    bad_length,   // the length of a later record has another CRC
    bad_data,     // a record has another CRC
    cut,          // the file ends inside of a record
    too_long,     // a record is longer than allowed
    no_example,   // a record isn't a message of this kind
    missing,      // a record lacks a feature, or it has no value
    kind,         // a feature has another kind of values than in the first record
    count,        // a feature has another number of values; of bytes, more than one
};

class ExampleRecords {
  public:
    // Takes the features `names` of each record. The first record says what kind of values each has, and how
    // many.
    explicit ExampleRecords(std::vector<std::string> names);

    // Begins with another file.
    void begin(int file, uint64_t size);

    // Takes up to `most` records in the place of those that were taken before, or fewer if `stops` is true,
    // which is asked before each record. False at the file's end and for a fault.
    bool take(size_t most, const std::function<bool()>& stops = [] { return false; });

    size_t num_fields() const noexcept { return columns_.size(); }
    FeatureKind kind(size_t field) const noexcept { return columns_[field].kind; }
    size_t count(size_t field) const noexcept { return columns_[field].count; }

    // The records that were taken: their CRCs, and the places of bytes in the file or the numbers of each
    // feature.
    const std::vector<uint32_t>& sums() const noexcept { return sums_; }
    const std::vector<int64_t>& offsets(size_t field) const noexcept { return columns_[field].offsets; }
    const std::vector<int64_t>& lengths(size_t field) const noexcept { return columns_[field].lengths; }
    const std::vector<int64_t>& ints(size_t field) const noexcept { return columns_[field].ints; }
    const std::vector<float>& floats(size_t field) const noexcept { return columns_[field].floats; }

    ExampleFault fault() const noexcept { return fault_; }
    int error() const noexcept { return window_.error(); }
    // The record that is read next or has the fault, by its number in the file; its first byte; and the
    // number of the feature.
    uint64_t record() const noexcept { return record_; }
    uint64_t at() const noexcept { return at_; }
    size_t fault_field() const noexcept { return fault_field_; }
    // Returns all features of the record that was read last.
    const std::vector<Feature>& features() const noexcept { return features_; }

  private:
    struct Column {
        FeatureKind kind = FeatureKind::none;
        size_t count = 0;
        std::vector<int64_t> offsets, lengths, ints;
        std::vector<float> floats;
    };

    bool fail(ExampleFault fault, size_t field = 0) noexcept;
    bool next();
    bool add(std::span<const uint8_t> record);
    bool put(size_t field, const Feature& feature, std::span<const uint8_t> record);

    const std::vector<std::string> names_;
    std::vector<Column> columns_;
    std::vector<uint32_t> sums_;
    std::vector<Feature> features_;
    uint64_t size_ = 0, at_ = 0, record_ = 0;
    FileWindow window_;
    ExampleFault fault_ = ExampleFault::none;
    size_t fault_field_ = 0;
};

}  // namespace standpipe
