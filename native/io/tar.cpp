#include "io/tar.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

namespace standpipe {
namespace {

constexpr uint64_t kWindow = 4096;  // of one read: of small members several headers
constexpr uint64_t kZerosAtOnce = 64 << 10;
constexpr uint64_t kNoNumber = std::numeric_limits<uint64_t>::max();

// The places of a header's fields.
constexpr size_t kName = 0, kNameSize = 100, kSizeAt = 124, kSizeSize = 12, kSum = 148, kSumSize = 8,
                 kType = 156, kMagic = 257, kPrefix = 345, kPrefixSize = 155;

using Block = std::span<const uint8_t>;

std::string_view text_of(Block bytes) noexcept {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string_view until_nul(std::string_view text) noexcept { return text.substr(0, text.find('\0')); }

// A number of a header: octal digits, or base 256 where the first bit is set. `kNoNumber` if it is neither,
// or doesn't fit 63 bits.
uint64_t number_of(Block field) noexcept {
    uint64_t value = 0;
    if (field[0] & 0x80) {
        value = field[0] & 0x7f;
        for (const uint8_t byte : field.subspan(1)) {
            if (value >> 55) return kNoNumber;
            value = value << 8 | byte;
        }
        return value;
    }
    std::string_view text = until_nul(text_of(field));
    text = text.substr(std::min(text.find_first_not_of(' '), text.size()));
    for (const char digit : text.substr(0, text.find(' '))) {
        if (digit < '0' || digit > '7' || value >> 60) return kNoNumber;
        value = value << 3 | static_cast<uint64_t>(digit - '0');
    }
    return value;
}

bool sum_is_right(Block header) noexcept {
    int64_t as_unsigned = ' ' * static_cast<int64_t>(kSumSize), as_signed = as_unsigned;
    for (size_t i = 0; i < header.size(); ++i) {
        if (i >= kSum && i < kSum + kSumSize) continue;
        as_unsigned += header[i];
        as_signed += static_cast<int8_t>(header[i]);  // some old programs took chars as signed
    }
    const uint64_t told = number_of(header.subspan(kSum, kSumSize));
    return told == static_cast<uint64_t>(as_unsigned) || told == static_cast<uint64_t>(as_signed);
}

bool is_zero(Block bytes) noexcept {
    return std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte == 0; });
}

bool is_compressed(Block head) noexcept {
    using namespace std::string_view_literals;
    const auto starts = [text = text_of(head)](std::string_view magic) { return text.starts_with(magic); };
    return starts("\x1f\x8b"sv) || starts("\x28\xb5\x2f\xfd"sv) || starts("\xfd\x37zXZ\0"sv) ||
           starts("BZh"sv);
}

// A decimal number; `kNoNumber` if it isn't one, or doesn't fit 63 bits.
uint64_t decimal(std::string_view text) noexcept {
    uint64_t value = 0;
    for (const char digit : text) {
        if (digit < '0' || digit > '9' || value >= kNoNumber / 20) return kNoNumber;
        value = 10 * value + static_cast<uint64_t>(digit - '0');
    }
    return text.empty() ? kNoNumber : value;
}

constexpr uint64_t padded(uint64_t size) noexcept { return (size + kTarBlock - 1) / kTarBlock * kTarBlock; }

}  // namespace

TarReader::TarReader(int file, uint64_t size, uint64_t at)
    : window_(kWindow), size_(size), at_(at), begin_(at) {
    window_.begin(file, size);
}

bool TarReader::fail(TarFault fault, int error) noexcept {
    fault_ = fault;
    error_ = error;
    return false;
}

std::span<const uint8_t> TarReader::view(uint64_t at, uint64_t size) {
    const Block found = window_.view(at, size);
    if (window_.error() == 0) return found;
    fail(TarFault::cant_read, window_.error());
    return {};
}

// Returns whether only zeros follow, and not too many: reading all zeros of a sparse file would take minutes.
bool TarReader::is_end() {
    const uint64_t end = std::min(size_, at_ + kMostPadding);
    for (uint64_t at = at_; at < end;) {
        const Block zeros = view(at, kZerosAtOnce);
        if (fault_ != TarFault::none) return false;
        if (zeros.empty()) return true;  // it was shortened after it was opened
        if (!is_zero(zeros)) return fail(TarFault::more);
        at += zeros.size();
    }
    return end == size_ || fail(TarFault::zeros);
}

// The data of a long name or pax header.
bool TarReader::extended(uint64_t at, uint64_t size, std::span<const uint8_t>& text) {
    if (size > kMostExtended) return fail(TarFault::too_long);
    text = view(at, size);
    if (fault_ != TarFault::none) return false;
    return text.size() == size || fail(TarFault::cut);
}

// Records such as "19 path=folder/a.jpg\n", of which the number counts all bytes.
bool TarReader::read_pax(std::span<const uint8_t> text, Pax& pax) {
    for (std::string_view rest = text_of(text); !rest.empty() && rest[0] != '\0';) {
        const size_t space = rest.find(' ');
        const uint64_t length = space == rest.npos ? kNoNumber : decimal(rest.substr(0, space));
        if (length > rest.size() || length < space + 3 || rest[length - 1] != '\n')
            return fail(TarFault::bad_header);
        const std::string_view record = rest.substr(space + 1, length - space - 2);
        rest.remove_prefix(length);
        const size_t equals = record.find('=');
        if (equals == record.npos) return fail(TarFault::bad_header);
        const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
        if (key == "path") {
            if (value.size() > kLongestMemberName) return fail(TarFault::too_long);
            if (value.empty()) pax.path.reset();
            else pax.path = until_nul(value);
        } else if (key == "size") {
            pax.size = decimal(value);
            if (value.empty()) pax.size.reset();
            if (pax.size == kNoNumber) return fail(TarFault::bad_header);
        } else if (key.starts_with("GNU.sparse.") || key == "SCHILY.realsize") {
            pax.sparse = true;
        }
    }
    return true;
}

bool TarReader::next(TarMember& member) {
    if (fault_ != TarFault::none) return false;
    name_.clear();
    told_ = 0;
    Pax pax = global_;
    std::optional<std::string> long_name;
    for (const uint64_t first = at_;;) {
        if (at_ - first > kMostHeaders - kTarBlock) return fail(TarFault::too_long);
        const Block header = view(at_, kTarBlock);
        if (fault_ != TarFault::none) return false;
        if (header.empty()) {
            if (at_ != first) return fail(TarFault::cut);
            // Some programs write no zeros. Without the padding of the last member, more may be missing.
            unmarked_ = at_ > begin_ && size_ % kTarBlock == 0;
            return unmarked_ ? false : fail(TarFault::no_end);
        }
        const auto no_header = [&](TarFault later) {
            if (at_ != begin_) return fail(later);
            return fail(is_compressed(header) ? TarFault::compressed : TarFault::not_tar);
        };
        if (header.size() < kTarBlock) return no_header(TarFault::cut);
        if (is_zero(header)) {
            if (at_ != first) return fail(TarFault::cut);
            is_end();
            return false;
        }
        if (!sum_is_right(header)) return no_header(TarFault::bad_header);
        const char type = static_cast<char>(header[kType]);
        const uint64_t size = number_of(header.subspan(kSizeAt, kSizeSize)), data = at_ + kTarBlock;
        const bool posix = text_of(header.subspan(kMagic, 6)) == std::string_view("ustar\0", 6);
        const bool describes =
            type == 'L' || type == 'K' || type == 'N' || type == 'x' || type == 'X' || type == 'g';
        std::string name(until_nul(text_of(header.subspan(kName, kNameSize))));
        if (posix && header[kPrefix] != 0)
            name = std::string(until_nul(text_of(header.subspan(kPrefix, kPrefixSize)))) + "/" + name;
        if (!describes) {
            if (long_name) name = *long_name;
            if (pax.path) name = *pax.path;
        }
        name_ = name;
        if (describes) {
            told_ = size;
            if (size > size_ - data) return fail(TarFault::cut);
            std::span<const uint8_t> text;
            if (type != 'K' && type != 'N') {
                if (!extended(data, size, text)) return false;
                if (type == 'L') {
                    long_name = until_nul(text_of(text));
                    if (long_name->size() > kLongestMemberName) return fail(TarFault::too_long);
                } else if (type == 'g') {
                    if (!read_pax(text, global_)) return false;
                    pax = global_;
                } else if (!read_pax(text, pax)) {
                    return false;
                }
            }
            if (padded(size) > size_ - data) return fail(TarFault::cut);
            at_ = data + padded(size);
            continue;
        }
        if (type == 'S' || pax.sparse) return fail(TarFault::sparse);
        if (type == 'M') return fail(TarFault::volumes);
        // Links, devices, folders and pipes have no data, whatever their size says.
        const bool has_data = type < '1' || type > '6';
        const uint64_t bytes = !has_data ? 0 : pax.size ? *pax.size : size;
        told_ = bytes;
        if (bytes > size_ - data) return fail(TarFault::cut);
        const bool folder = type == '\0' && name_.ends_with('/');
        member = {first,
                  data,
                  bytes,
                  (type == '0' || type == '\0' || type == '7') && !folder,
                  type == '1' || type == '2',
                  name_};
        // Padding may be missing behind the last member: then there is no end either.
        at_ = data + std::min(padded(bytes), size_ - data);
        return true;
    }
}

std::span<const uint8_t> TarReader::content(const TarMember& member, uint64_t most) {
    return view(member.data, std::min(member.size, most));
}

}  // namespace standpipe
