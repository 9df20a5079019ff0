// Groups the members of tar shards into records, in WebDataset's naming: members that follow one another and
// have the same path up to the first dot of the base name are one record, and what follows the dot says which
// field each is. `TarShards` in Python says what a record may have.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/tar.h"

namespace standpipe {

// The kind of value that members with these extensions have in a record. Extensions are in lower case,
// without the first dot.
struct TarField {
    std::vector<std::string> extensions;
    bool number;  // an integer as text; otherwise bytes that have a place
};

enum class TarRecordFault : int {
    none = 0,
    tar,         // `TarReader::fault` says what
    missing,     // a record lacks a field
    unexpected,  // a member is for a field that the first record lacks
    two,         // a record has two members for a field
    no_number,   // the text of a number isn't one
    pickle,      // a member may hold code
    objects,     // a .npy member has Python objects, so it holds a pickle
};

class TarRecords {
  public:
    // `fields`: the first is the image. Members with an extension of `unexpected` are an error, and so are
    // those in `pickles`, and arrays of objects if there are any.
    TarRecords(std::vector<TarField> fields, std::vector<std::string> unexpected,
               std::vector<std::string> pickles);

    // Begins with another shard.
    void begin(int file, uint64_t size);

    // Takes records in the place of those that were taken before, `most` at most, or as many groups without
    // an image, or fewer if `stops` is true, which is asked before each member. False at the shard's end and
    // for a fault, with the last records.
    bool take(size_t most, const std::function<bool()>& stops = [] { return false; });

    size_t num_fields() const noexcept { return fields_.size(); }

    // The records that were taken: blocks from an image's first header to its data, places of a field, and
    // the integers of a field. Integers have no places, and other fields no integers: these columns are
    // empty.
    const std::vector<uint16_t>& headers() const noexcept { return headers_; }
    const std::vector<int64_t>& offsets(size_t field) const noexcept { return columns_[field].offsets; }
    const std::vector<int64_t>& lengths(size_t field) const noexcept { return columns_[field].lengths; }
    const std::vector<int64_t>& numbers(size_t field) const noexcept { return columns_[field].numbers; }
    // The images' names, one after another, and the length of each.
    const std::vector<uint8_t>& names() const noexcept { return names_; }
    const std::vector<uint16_t>& name_lengths() const noexcept { return name_lengths_; }
    // A name of each group without an image, each ended by a NUL byte, and their number.
    const std::vector<uint8_t>& skipped() const noexcept { return skipped_; }
    size_t num_skipped() const noexcept { return num_skipped_; }

    // Returns pairs of a record and an earlier one with the same key, for the shard that was finished, by
    // their numbers in it.
    std::vector<std::pair<int64_t, int64_t>> duplicates();
    // Returns whether that shard lacks the zeros that mark the end of an archive.
    bool unmarked() const noexcept { return reader_->unmarked(); }
    // Returns the number of members that no field takes, over all shards so far, by extension.
    const std::map<std::string, uint64_t, std::less<>>& left_out() const noexcept { return left_out_; }

    TarRecordFault fault() const noexcept { return fault_; }
    const TarReader& reader() const noexcept { return *reader_; }
    // The header with the fault, its member's name, and the number of the field.
    uint64_t fault_at() const noexcept { return fault_at_; }
    const std::string& fault_name() const noexcept { return fault_name_; }
    size_t fault_field() const noexcept { return fault_field_; }

  private:
    struct Columns {
        std::vector<int64_t> offsets, lengths, numbers;
    };
    struct Value {
        bool is_there = false;
        std::string extension;
        int64_t offset = 0, length = 0, number = 0;
    };
    struct Group {
        std::string key, name;  // of its first member; and of its image, once there is one
        uint64_t header = 0;    // likewise
        uint64_t headers = 0;
        std::vector<Value> values;
        bool is_open = false;
    };

    bool add(const TarMember& member);
    bool put(const TarMember& member, size_t field, std::string_view extension);
    bool read_number(const TarMember& member, int64_t& number);
    bool has_objects(const TarMember& member, std::string_view extension);
    bool end_group();
    void count_left_out(std::string_view extension);
    bool fail(TarRecordFault fault, uint64_t at, std::string_view name, size_t field = 0);

    const std::vector<TarField> fields_;
    const std::vector<std::string> unexpected_;
    const std::vector<std::string> pickles_;
    std::map<std::string, size_t, std::less<>> field_of_;
    std::unique_ptr<TarReader> reader_;
    bool at_end_ = true;
    Group group_;
    size_t taken_ = 0;
    int64_t in_shard_ = 0;
    std::vector<std::pair<uint64_t, int64_t>> keys_;  // hash and record number, of the shard
    std::vector<uint16_t> headers_, name_lengths_;
    std::vector<uint8_t> names_, skipped_;
    size_t num_skipped_ = 0;
    std::vector<Columns> columns_;
    std::map<std::string, uint64_t, std::less<>> left_out_;
    TarRecordFault fault_ = TarRecordFault::none;
    uint64_t fault_at_ = 0;
    std::string fault_name_;
    size_t fault_field_ = 0;
};

}  // namespace standpipe
