#include "io/list_lines.h"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace standpipe {
namespace {

constexpr std::string_view kBlank = " \t";

std::string_view without_end(std::string_view text) noexcept {
    return text.substr(0, text.find_last_not_of(kBlank) + 1);
}

std::string_view stripped(std::string_view text) noexcept {
    text = without_end(text);
    return text.substr(std::min(text.find_first_not_of(kBlank), text.size()));
}

bool is_integer(std::string_view text) noexcept {
    if (text.starts_with('-')) text.remove_prefix(1);
    return !text.empty() &&
           std::all_of(text.begin(), text.end(), [](unsigned char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

bool leads_out(std::string_view path) noexcept {
    if (path.starts_with('/')) return true;
    for (size_t at = 0; at < path.size();) {
        const size_t end = std::min(path.find('/', at), path.size());
        if (path.substr(at, end - at) == "..") return true;
        at = end + 1;
    }
    return false;
}

size_t ListLines::take(std::span<const uint8_t> text, uint64_t offset, bool last) {
    places_.clear();
    labels_.clear();
    paths_.clear();
    const auto* const begin = reinterpret_cast<const char*>(text.data());
    size_t at = 0;
    while (at < text.size() && fault_ == LineFault::none) {
        const std::string_view rest(begin + at, text.size() - at);
        const size_t end = rest.find('\n');
        // Without an end so far, and too long already, it needn't be seen whole.
        if (end == rest.npos && !last && rest.size() <= kLongestLine) break;
        ++line_;
        fault_ = take_line(rest.substr(0, end), offset + at);
        at = end == rest.npos ? text.size() : at + end + 1;
    }
    return at;
}

LineFault ListLines::take_line(std::string_view line, uint64_t offset) {
    const size_t size = line.size();
    if (line.find('\0') != line.npos) return LineFault::nul;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find('\r') != line.npos) return LineFault::carriage_return;
    if (size > kLongestLine) return LineFault::too_long;
    if (line.find_first_not_of(kBlank) == line.npos) return LineFault::none;
    if (may_have_labels_) return take_labelled(line, offset);
    take_path(line, offset);
    return LineFault::none;
}

LineFault ListLines::take_labelled(std::string_view line, uint64_t offset) {
    const size_t tab = line.rfind('\t');
    const std::string_view solid = without_end(line);
    const size_t cut = tab != line.npos ? tab : solid.rfind(' ');
    std::string_view path = solid;
    LabelKind kind = LabelKind::absent;
    std::string_view label;
    if (cut != line.npos) {
        label = stripped(line.substr(cut + 1));
        path = line.substr(0, cut);
        if (tab == line.npos) path = without_end(path);
        if (label.empty()) return LineFault::empty_label;
        kind = is_integer(label) ? LabelKind::number : LabelKind::name;
    }
    if (path.empty()) return LineFault::empty_path;
    if (first_line_ == 0) {
        first_line_ = line_;
        kind_ = kind;
    }
    if (kind != kind_) {
        fault_kind_ = kind;
        return LineFault::other_kind;
    }
    if (kind != LabelKind::absent)
        if (const LineFault fault = take_label(label); fault != LineFault::none) return fault;
    take_path(path, offset);
    return LineFault::none;
}

LineFault ListLines::take_label(std::string_view label) {
    if (kind_ == LabelKind::name) return take_name(label);
    int64_t value = 0;
    if (std::from_chars(label.data(), label.data() + label.size(), value).ec != std::errc())
        return LineFault::too_large;
    labels_.push_back(value);
    return LineFault::none;
}

LineFault ListLines::take_name(std::string_view name) {
    if (last_code_ < 0 || names_[static_cast<size_t>(last_code_)] != name) {
        auto found = codes_.find(name);
        if (found == codes_.end()) {
            if (is_image_name(name)) {
                fault_label_ = name;
                return LineFault::image_name;
            }
            found = codes_.emplace(name, static_cast<int64_t>(names_.size())).first;
            names_.emplace_back(name);
        }
        last_code_ = found->second;
    }
    labels_.push_back(last_code_);
    return LineFault::none;
}

bool ListLines::is_image_name(std::string_view name) const noexcept {
    return std::any_of(image_suffixes_.begin(), image_suffixes_.end(), [&](std::string_view suffix) {
        return name.size() >= suffix.size() &&
               std::equal(suffix.begin(), suffix.end(), name.end() - static_cast<ptrdiff_t>(suffix.size()),
                          [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b - 'A' + 'a' : b); });
    });
}

void ListLines::take_path(std::string_view path, uint64_t offset) {
    if (line_that_leads_out_ == 0 && leads_out(path)) line_that_leads_out_ = line_;
    places_.push_back(pack_place(offset, path.size()));  // a path starts where its line does
    paths_.insert(paths_.end(), path.begin(), path.end());
}

}  // namespace standpipe
