#include "io/tar_records.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace standpipe {
namespace {

constexpr uint64_t kLongestNumber = 64;
constexpr uint64_t kNpyHead = 1024;      // bytes in which the dtype of a .npy member is
constexpr size_t kMostExtensions = 100;  // that are counted apart
constexpr std::string_view kOthers = "others";
constexpr std::string_view kLinks = "links to other members";
constexpr std::string_view kBlank = " \t\r\n\f\v";

struct Parts {
    std::string_view key;
    std::string extension;  // in lower case; empty if the name has none, or no key
};

Parts parts_of(std::string_view name) {
    const size_t slash = name.rfind('/'), base = slash == name.npos ? 0 : slash + 1,
                 dot = name.find('.', base);
    if (dot == name.npos || dot == base) return {name, {}};
    Parts parts{name.substr(0, dot), std::string(name.substr(dot + 1))};
    for (char& c : parts.extension)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return parts;
}

// FNV-1a, whose low bits are mixed once more.
uint64_t hash_of(std::string_view text) noexcept {
    uint64_t hash = 0xcbf29ce484222325;
    for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
    return (hash ^ hash >> 32) * 0x9e3779b97f4a7c15;
}

}  // namespace

TarRecords::TarRecords(std::vector<TarField> fields, std::vector<std::string> unexpected,
                       std::vector<std::string> pickles)
    : fields_(std::move(fields)),
      unexpected_(std::move(unexpected)),
      pickles_(std::move(pickles)),
      columns_(fields_.size()) {
    for (size_t field = 0; field < fields_.size(); ++field)
        for (const std::string& extension : fields_[field].extensions) field_of_.emplace(extension, field);
}

void TarRecords::begin(int file, uint64_t size) {
    reader_ = std::make_unique<TarReader>(file, size);
    at_end_ = false;
    group_.is_open = false;
    in_shard_ = 0;
    keys_.clear();
}

bool TarRecords::take(size_t most, const std::function<bool()>& stops) {
    taken_ = num_skipped_ = 0;
    headers_.clear();
    names_.clear();
    name_lengths_.clear();
    skipped_.clear();
    for (Columns& columns : columns_) {
        columns.offsets.clear();
        columns.lengths.clear();
        columns.numbers.clear();
    }
    TarMember member;
    while (!at_end_ && fault_ == TarRecordFault::none && taken_ + num_skipped_ < most && !stops()) {
        if (reader_->next(member)) {
            if (!add(member)) break;
        } else if (reader_->fault() != TarFault::none) {
            fail(TarRecordFault::tar, reader_->fault_at(), reader_->fault_name());
        } else {
            at_end_ = true;
            end_group();
        }
    }
    return !at_end_ && fault_ == TarRecordFault::none;
}

bool TarRecords::add(const TarMember& member) {
    if (member.link) count_left_out(kLinks);
    if (!member.regular) return true;
    const Parts parts = parts_of(member.name);
    if (parts.extension.empty()) {
        count_left_out("");
        return true;
    }
    const auto found = field_of_.find(parts.extension);
    const bool again = found != field_of_.end() && group_.is_open && group_.key == parts.key &&
                       group_.values[found->second].is_there &&
                       group_.values[found->second].extension == parts.extension;
    // The same name once more is another record, which `duplicates` returns.
    if (!group_.is_open || group_.key != parts.key || again) {
        if (!end_group()) return false;
        group_ = {std::string(parts.key),
                  std::string(member.name),
                  member.header,
                  0,
                  std::vector<Value>(fields_.size()),
                  true};
    }
    if (found != field_of_.end()) return put(member, found->second, parts.extension);
    if (std::find(unexpected_.begin(), unexpected_.end(), parts.extension) != unexpected_.end())
        return fail(TarRecordFault::unexpected, member.header, member.name);
    const std::string_view last = std::string_view(parts.extension).substr(parts.extension.rfind('.') + 1);
    if (std::find(pickles_.begin(), pickles_.end(), last) != pickles_.end())
        return fail(TarRecordFault::pickle, member.header, member.name);
    if (!pickles_.empty() && has_objects(member, parts.extension))
        return fail(TarRecordFault::objects, member.header, member.name);
    count_left_out(parts.extension);
    return true;
}

bool TarRecords::put(const TarMember& member, size_t field, std::string_view extension) {
    Value& value = group_.values[field];
    if (value.is_there) return fail(TarRecordFault::two, member.header, member.name, field);
    value = {true, std::string(extension), static_cast<int64_t>(member.data),
             static_cast<int64_t>(member.size), 0};
    if (field == 0) {
        group_.name = member.name;
        group_.header = member.header;
        group_.headers = (member.data - member.header) / kTarBlock;
    }
    if (has_objects(member, extension))
        return fail(TarRecordFault::objects, member.header, member.name, field);
    if (!fields_[field].number) return true;
    if (read_number(member, value.number)) return true;
    return fail(TarRecordFault::no_number, member.header, member.name, field);
}

bool TarRecords::read_number(const TarMember& member, int64_t& number) {
    if (member.size > kLongestNumber) return false;
    const auto bytes = reader_->content(member, kLongestNumber);
    std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (bytes.size() < member.size) return false;
    text = text.substr(std::min(text.find_first_not_of(kBlank), text.size()));
    text = text.substr(0, text.find_last_not_of(kBlank) + 1);
    if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

bool TarRecords::has_objects(const TarMember& member, std::string_view extension) {
    if (extension.substr(extension.rfind('.') + 1) != "npy") return false;
    const auto bytes = reader_->content(member, kNpyHead);
    const std::string_view head(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    // The header is a text, such as {'descr': '|O', …}; the data behind it may be anything.
    return head.substr(0, head.find('\n')).find("|O'") != head.npos;
}

bool TarRecords::end_group() {
    if (!group_.is_open) return true;
    group_.is_open = false;
    if (!group_.values[0].is_there) {
        skipped_.insert(skipped_.end(), group_.name.begin(), group_.name.end());
        skipped_.push_back(0);
        ++num_skipped_;
        return true;
    }
    for (size_t field = 1; field < fields_.size(); ++field)
        if (!group_.values[field].is_there)
            return fail(TarRecordFault::missing, group_.header, group_.name, field);
    for (size_t field = 0; field < fields_.size(); ++field) {
        const Value& value = group_.values[field];
        Columns& columns = columns_[field];
        if (fields_[field].number) {
            columns.numbers.push_back(value.number);
        } else {
            columns.offsets.push_back(value.offset);
            columns.lengths.push_back(value.length);
        }
    }
    headers_.push_back(static_cast<uint16_t>(group_.headers));
    names_.insert(names_.end(), group_.name.begin(), group_.name.end());
    name_lengths_.push_back(static_cast<uint16_t>(group_.name.size()));
    keys_.emplace_back(hash_of(group_.key), in_shard_++);
    ++taken_;
    return true;
}

std::vector<std::pair<int64_t, int64_t>> TarRecords::duplicates() {
    std::vector<std::pair<int64_t, int64_t>> pairs;
    std::sort(keys_.begin(), keys_.end());
    for (size_t i = 1, first = 0; i < keys_.size(); ++i) {
        if (keys_[i].first != keys_[first].first) first = i;
        else pairs.emplace_back(keys_[i].second, keys_[first].second);
    }
    std::sort(pairs.begin(), pairs.end());
    return pairs;
}

void TarRecords::count_left_out(std::string_view extension) {
    if (const auto found = left_out_.find(extension); found != left_out_.end()) ++found->second;
    else ++left_out_[std::string(left_out_.size() < kMostExtensions ? extension : kOthers)];
}

bool TarRecords::fail(TarRecordFault fault, uint64_t at, std::string_view name, size_t field) {
    fault_ = fault;
    fault_at_ = at;
    fault_name_ = name;
    fault_field_ = field;
    return false;
}

}  // namespace standpipe
