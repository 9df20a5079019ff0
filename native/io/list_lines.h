// Splits the lines of a list of files into paths and labels, chunk by chunk, in memory that depends on the
// chunk and the class names alone. `FileList` in Python says what a line may hold.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace standpipe {

constexpr size_t kLongestLine = (1 << 16) - 1;  // so that a path's length fits 16 bits
constexpr int kOffsetBits = 48;

// Packs the place of a path's bytes: its offset in the low 48 bits, its length in the high 16.
constexpr uint64_t pack_place(uint64_t offset, uint64_t length) noexcept {
    return offset | length << kOffsetBits;
}
constexpr uint64_t place_offset(uint64_t place) noexcept {
    return place & ((uint64_t{1} << kOffsetBits) - 1);
}
constexpr uint64_t place_length(uint64_t place) noexcept { return place >> kOffsetBits; }

// Returns whether a path leads out of the folder that it starts from, apart from links: it is absolute, or
// has a "..".
bool leads_out(std::string_view path) noexcept;

enum class LabelKind : int { absent = 0, number = 1, name = 2 };

// The reasons why a line can't be read, in the order in which a line is checked.
enum class LineFault : int {
    none = 0,
    nul,
    carriage_return,
    too_long,
    empty_label,
    empty_path,
    other_kind,
    too_large,
    image_name,
};

class ListLines {
  public:
    // image_suffixes: in lower case; a class name that ends with one in any case looks like a file's
    ListLines(bool may_have_labels, std::vector<std::string> image_suffixes)
        : may_have_labels_(may_have_labels), image_suffixes_(std::move(image_suffixes)) {}

    // Takes the whole lines of `text`, which starts at byte `offset` of the lines, in the place of what was
    // taken before; `last`: the list ends with it. Returns how many bytes were taken. The rest, the start of
    // a line, must come again. Stops at the first line that can't be read.
    size_t take(std::span<const uint8_t> text, uint64_t offset, bool last);

    // One value for each record of the chunk; labels are numbers, codes of names, or absent.
    const std::vector<uint64_t>& places() const noexcept { return places_; }
    const std::vector<int64_t>& labels() const noexcept { return labels_; }
    // The bytes of the chunk's paths, one after another.
    const std::vector<uint8_t>& paths() const noexcept { return paths_; }

    bool has_labels() const noexcept { return first_line_ && kind_ != LabelKind::absent; }
    bool has_names() const noexcept { return first_line_ && kind_ == LabelKind::name; }
    // Class names by code, in the order in which they came.
    const std::vector<std::string>& names() const noexcept { return names_; }

    // The first line whose path leads out of its folder; 0: none so far.
    int64_t line_that_leads_out() const noexcept { return line_that_leads_out_; }

    LineFault fault() const noexcept { return fault_; }
    int64_t fault_line() const noexcept { return line_; }
    LabelKind fault_kind() const noexcept { return fault_kind_; }
    const std::string& fault_label() const noexcept { return fault_label_; }
    LabelKind first_kind() const noexcept { return kind_; }
    int64_t first_line() const noexcept { return first_line_; }

  private:
    struct Hash {
        using is_transparent = void;
        size_t operator()(std::string_view text) const noexcept {
            return std::hash<std::string_view>{}(text);
        }
    };

    LineFault take_line(std::string_view line, uint64_t offset);
    LineFault take_labelled(std::string_view line, uint64_t offset);
    LineFault take_label(std::string_view label);
    LineFault take_name(std::string_view name);
    bool is_image_name(std::string_view name) const noexcept;
    void take_path(std::string_view path, uint64_t offset);

    const bool may_have_labels_;
    const std::vector<std::string> image_suffixes_;
    int64_t line_ = 0, first_line_ = 0, line_that_leads_out_ = 0;  // counted from 1; 0: none yet
    LabelKind kind_ = LabelKind::absent, fault_kind_ = LabelKind::absent;
    LineFault fault_ = LineFault::none;
    std::string fault_label_;
    std::vector<uint64_t> places_;
    std::vector<int64_t> labels_;
    std::vector<uint8_t> paths_;
    std::unordered_map<std::string, int64_t, Hash, std::equal_to<>> codes_;
    std::vector<std::string> names_;
    int64_t last_code_ = -1;  // lists often stand class by class
};

}  // namespace standpipe
