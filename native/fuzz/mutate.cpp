#include "fuzz/mutate.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

namespace standpipe {
namespace {

constexpr size_t kMostBytes = 1 << 20;

// A marker with its length and payload; `begin` is at its 0xff.
struct Segment {
    size_t begin = 0, end = 0;
    uint8_t code = 0;

    size_t payload() const noexcept { return std::min(begin + 4, end); }
};

enum Code : uint8_t { sof0 = 0xc0, sof2 = 0xc2, dht = 0xc4, sos = 0xda, dqt = 0xdb, dri = 0xdd };

bool is_frame(uint8_t code) noexcept {
    return code >= 0xc0 && code <= 0xcf && code != dht && code != 0xc8 && code != 0xcc;
}

std::vector<Segment> segments_of(const File& file) {
    std::vector<Segment> found;
    for (size_t i = 2; i + 4 <= file.size();) {
        const uint8_t code = file[i + 1];
        if (file[i] != 0xff || code < 0xc0 || code == 0xff || (code >= 0xd0 && code <= 0xd9)) {
            ++i;  // entropy-coded bytes
            continue;
        }
        const size_t length = static_cast<size_t>(file[i + 2]) << 8 | file[i + 3];
        const size_t end = std::min(i + 2 + std::max<size_t>(length, 2), file.size());
        found.push_back({i, end, code});
        i = end;
    }
    return found;
}

class Mutation {
  public:
    Mutation(File& file, const File& other, Draws& draws) : file_(file), other_(other), draws_(draws) {}

    void once() {
        if (file_.empty()) file_ = other_;
        if (file_.empty()) return;
        const std::vector<Segment> segments = segments_of(file_);
        const auto scan = std::find_if(segments.begin(), segments.end(),
                                       [](const Segment& segment) { return segment.code == sos; });
        // Most changes to coded bytes still give a picture, most others an error soon: so the former are
        // preferred.
        coded_from_ = scan != segments.end() && scan->end < file_.size() && below(8) ? scan->end : 0;
        if (segments.empty() || below(2)) return of_bytes();
        of_segment(segments);
    }

  private:
    size_t below(size_t n) noexcept { return draws_.below(n); }
    size_t anywhere() noexcept { return coded_from_ + below(file_.size() - coded_from_); }
    uint8_t any_byte() noexcept {
        constexpr uint8_t telling[] = {0, 1, 2, 4, 0x11, 0x22, 0x41, 0x7f, 0x80, 0xd9, 0xfe, 0xff};
        return below(2) ? telling[below(std::size(telling))] : static_cast<uint8_t>(below(256));
    }
    void set(size_t at, uint8_t byte) noexcept {
        if (at < file_.size()) file_[at] = byte;
    }
    auto at(size_t i) noexcept { return file_.begin() + static_cast<std::ptrdiff_t>(i); }

    void insert(size_t where, std::span<const uint8_t> part) {
        if (file_.size() + part.size() > kMostBytes) return;
        const File copy(part.begin(), part.end());  // `part` may be in the file itself
        file_.insert(at(where), copy.begin(), copy.end());
    }

    void of_bytes() {
        const size_t from = anywhere(), length = 1 + below(std::min<size_t>(file_.size() - from, 256));
        switch (below(9)) {
            case 0:
            case 1: file_[from] ^= static_cast<uint8_t>(1 << below(8)); break;
            case 2:
            case 3: file_[from] = any_byte(); break;
            case 4: file_.resize(from); break;
            case 5: file_.erase(at(from), at(from + length)); break;
            case 6: insert(anywhere(), std::span(file_).subspan(from, length)); break;
            case 7: std::fill_n(at(from), length, any_byte()); break;
            case 8: splice(from); break;
        }
        if (below(4) == 0)
            file_.insert(file_.end(), {0xff, 0xd9});  // an end marker: no check of the whole file
    }

    void splice(size_t from) {
        if (other_.empty()) return;
        const size_t tail = below(other_.size());
        if (from + other_.size() - tail > kMostBytes) return;
        file_.resize(from);
        file_.insert(file_.end(), other_.begin() + static_cast<std::ptrdiff_t>(tail), other_.end());
    }

    void of_segment(const std::vector<Segment>& segments) {
        const Segment& segment = segments[below(segments.size())];
        switch (below(24)) {
            case 0: set(segment.begin + 2 + below(2), any_byte()); break;  // length
            case 1:
            case 2: set(segment.begin + 1, changed_code(segment.code)); break;
            case 3: file_.erase(at(segment.begin), at(segment.end)); break;
            case 4:
            case 5: repeat(segments, segment); break;
            case 6: insert(segment.begin, std::array<uint8_t, 6>{0xff, dri, 0, 4, 0, any_byte()}); break;
            default: of_payload(segment); break;
        }
    }

    uint8_t changed_code(uint8_t code) noexcept {
        constexpr uint8_t codes[] = {sof0, 0xc1, sof2, 0xc3, dht, 0xc9, 0xca, 0xcc, 0xd0, 0xd8,
                                     0xd9, sos,  dqt,  0xdc, dri, 0xe0, 0xe2, 0xee, 0xfe, 0x01};
        if (is_frame(code) && below(2)) return code == sof0 ? sof2 : sof0;
        return codes[below(std::size(codes))];
    }

    // A scan takes its coded bytes along, and may come back very often.
    void repeat(const std::vector<Segment>& segments, const Segment& segment) {
        size_t end = segment.end;
        if (segment.code == sos && below(2)) {
            const auto next = std::find_if(segments.begin(), segments.end(),
                                           [&](const Segment& later) { return later.begin >= segment.end; });
            end = next == segments.end() ? file_.size() : next->begin;
        }
        const File part(at(segment.begin), at(end));
        const size_t times = below(4) ? 1 : 1 + below(120);
        for (size_t i = 0; i < times; ++i) insert(end, part);
    }

    void of_payload(const Segment& segment) {
        const size_t payload = segment.payload(), length = segment.end - payload;
        if (length == 0) return;
        switch (segment.code) {
            case sos: return of_scan(payload, length);
            case dht: return of_huffman(payload, length);
            case dqt: return of_quantisers(payload, length);
            case dri: return set(payload + below(2), below(2) ? static_cast<uint8_t>(below(5)) : any_byte());
            default: break;
        }
        if (is_frame(segment.code)) return of_frame(payload, length);
        set(payload + below(length), any_byte());
    }

    // precision, height, width, then identity, sampling factors and quantisers of each component
    void of_frame(size_t payload, size_t length) {
        const size_t components = length > 6 ? (length - 6) / 3 : 0;
        const size_t component = payload + 6 + 3 * (components ? below(components) : 0);
        switch (below(components ? 6 : 3)) {
            case 0: set(payload + 1 + below(4), any_byte()); break;
            case 1:
                set(payload + 2 + 2 * below(2), static_cast<uint8_t>(below(256)));
                break;  // sizes below 256
            case 2: set(payload + below(6), any_byte()); break;
            case 3:
            case 4: set(component + 1, static_cast<uint8_t>((1 + below(4)) << 4 | (1 + below(4)))); break;
            case 5: set(component + 2 * below(2), any_byte()); break;
        }
    }

    // components, then identity and tables of each, then spectral range and bit position
    void of_scan(size_t payload, size_t length) {
        const size_t tail = payload + (length >= 3 ? length - 3 : 0);
        switch (below(4)) {
            case 0: set(tail, static_cast<uint8_t>(below(65))); break;
            case 1: set(tail + 1, static_cast<uint8_t>(below(65))); break;
            case 2: set(tail + 2, static_cast<uint8_t>(below(4) << 4 | below(4))); break;
            case 3:
                set(payload + below(length), below(2) ? static_cast<uint8_t>(below(5)) : any_byte());
                break;
        }
    }

    // class and number, counts of codes by length, symbols
    void of_huffman(size_t payload, size_t length) {
        switch (below(8)) {
            case 0: set(payload, static_cast<uint8_t>(below(2) << 4 | below(5))); break;
            case 1: set(payload + below(length), any_byte()); break;
            case 2:
            case 3: lengthen_code(payload + 1 + below(15)); break;
            default:
                if (length > 17) set(payload + 17 + below(length - 17), any_byte());
                break;
        }
    }

    // One code more of the next length, so that the table stays whole.
    void lengthen_code(size_t count) noexcept {
        if (count + 1 >= file_.size() || file_[count] == 0) return;
        --file_[count];
        ++file_[count + 1];
    }

    void of_quantisers(size_t payload, size_t length) {
        if (below(16) == 0) return set(payload, static_cast<uint8_t>(below(2) << 4 | below(5)));
        set(payload + below(length), any_byte());
    }

    File& file_;
    const File& other_;
    Draws& draws_;
    size_t coded_from_ = 0;  // the first byte of the first scan, or of the file
};

}  // namespace

void mutate(File& file, const File& other, Draws& draws) {
    Mutation mutation(file, other, draws);
    for (size_t left = 1 + draws.below(draws.below(2) ? 2 : 8); left > 0; --left) mutation.once();
}

}  // namespace standpipe
