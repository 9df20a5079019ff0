#include "image/row_maker.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <utility>

namespace standpipe {
namespace {

// While it lives, waits of this thread are written to a maker's heartbeat, if it has one.
class HeartbeatScope {
  public:
    explicit HeartbeatScope(Words* words) noexcept : before_(Words::mine()) {
        if (words) Words::mine() = words;
    }
    ~HeartbeatScope() { Words::mine() = before_; }

  private:
    Words* const before_;
};

// Gives a part back at its end, unless it held a file before.
struct PartScope {
    ~PartScope() {
        if (!holds_file) part.release();
    }
    SideArena::Part& part;
    const bool holds_file = part.bytes() > 0;
};

void begin_row(Words& words, int64_t number) noexcept {
    const auto now = Heartbeat::Clock::now().time_since_epoch();
    std::atomic_ref(words.since_ns) = std::chrono::nanoseconds(now).count();
    std::atomic_ref(words.row) = number;
}

}  // namespace

void RowCounts::add(const Outcome& outcome) noexcept {
    made += outcome.kind == Outcome::Kind::ok;
    damaged += outcome.damaged;
    truncated += outcome.truncated;
    redecoded += outcome.redecoded;
    foreign += outcome.by_pillow;
}

std::string other_size(const Program& program, size_t input, Size size, Size first) {
    const int64_t own = program.inputs[input].grid, whole = program.inputs.front().grid;
    const auto fits = [&](int side, int of_first) { return side * whole == of_first * own; };
    const bool is_known = size.height > 0 && first.height > 0;
    if (!is_known || (fits(size.height, first.height) && fits(size.width, first.width))) return {};
    std::string text = "it has " + text_of(size) + " pixels, but its ";
    if (input == 0) {
        const bool is_turned = size.height == first.width && size.width == first.height;
        return text + "annotations say " + text_of(first) +
               (is_turned ? "; decode(orientation='apply') turns images as their EXIF says, 'ignore' doesn't"
                          : "");
    }
    text += "image " + text_of(first);
    if (own == whole) return text + "; all pictures of a record have one size";
    const int64_t common = std::gcd(own, whole);
    return text + "; with its scale=, sides are " + std::to_string(own / common) + "/" +
           std::to_string(whole / common) + " of the image's";
}

Outcome RowMaker::make(const Program& program, size_t input, const InputData& data, const Row& row,
                       Fallback* pillow) {
    const HeartbeatScope scope(words_);
    const PartScope of_row{part_};
    Outcome outcome;
    if (const auto* pixels = std::get_if<RawPixels>(&data)) {
        outcome = inputs_.from_pixels(program, input, *pixels, row.key, row.place, part_);
    } else {
        const Encoded& encoded = std::get<Encoded>(data);
        outcome = inputs_.from_encoded(program, input, encoded.bytes, row.key, row.place,
                                       encoded.uncounted_bytes, part_);
        if (outcome.kind == Outcome::Kind::foreign && pillow)
            outcome = by_pillow(program, input, encoded, row, *pillow);
    }
    size_ = outcome.size;
    if (std::string wrong = other_size(program, input, size_, row.first); !wrong.empty()) {
        outcome.kind = Outcome::Kind::decode_error;
        outcome.text = std::move(wrong);
    }
    counts_.add(outcome);
    return outcome;
}

Outcome RowMaker::compose(const Composer& composer, std::span<const ImageFrame* const> frames,
                          const PastedShapes& pasted, size_t number, const Row& row) {
    const HeartbeatScope scope(words_);
    const PartScope of_row{part_};
    return composer.make(inputs_, part_, composed_, frames, pasted, number, row.key, row.place);
}

std::string RowMaker::reserve(const Program& program, size_t input, Size size, const Row& row,
                              uint64_t bytes) {
    uint64_t of_row = 0;
    std::string text = inputs_.bytes_from_pixels(program, input, size, row.key, of_row);
    if (!text.empty()) return text;
    bytes += of_row + row.beside_bytes;
    if (!part_.fits(bytes)) return over_side_cap(part_.bytes() + bytes, part_.cap());
    return part_.add(bytes) ? std::string() : "the loader was closed";
}

Outcome RowMaker::by_pillow(const Program& program, size_t input, const Encoded& data, const Row& row,
                            Fallback& pillow) {
    Outcome outcome;
    Size known{};
    std::string wrong = pillow.decode(
        data.bytes, program.inputs[input],
        [&](Size size, uint64_t frame_bytes) {
            std::string text = reserve(program, input, size, row, frame_bytes + data.uncounted_bytes);
            if (!text.empty()) known = size;
            return text;
        },
        [&](const RawPixels& pixels, bool truncated) {
            // Of what was reserved: waiting for the shared arena while holding a part of it could wait for
            // ever.
            SideArena reserved(part_.bytes());
            SideArena::Part own(reserved);
            outcome = inputs_.from_pixels(program, input, pixels, row.key, row.place, own);
            outcome.truncated = truncated && outcome.kind == Outcome::Kind::ok;
        });
    if (!wrong.empty()) {
        outcome = Outcome::decode_error(std::move(wrong));
        outcome.size = known;
    }
    outcome.by_pillow = true;
    return outcome;
}

std::vector<std::string> RowMaker::make_many(const Program& program, std::span<const Sample> samples,
                                             Fallback& pillow) {
    std::vector<std::string> wrong;
    for (const Sample& sample : samples) {
        begin_row(*words_, sample.number);
        wrong.push_back(make(program, 0, Encoded{sample.bytes}, sample.row, &pillow).text);
    }
    return wrong;
}

ReadResult RowMaker::read(Reader& reader, const FileRange& range, uint64_t free_bytes) {
    const HeartbeatScope scope(words_);
    // Each file has a pool of its own, so no other read waits for its memory.
    const auto buffers = std::make_shared<BufferPool>(side_.cap(), [this, free_bytes](size_t bytes) {
        const bool has_asked = part_.bytes() > 0;  // for an earlier try
        return bytes <= free_bytes || has_asked || part_.add(bytes, true);
    });
    return reader.read(range, *buffers);
}

bool RowMaker::admit(uint64_t bytes, uint64_t free_bytes) {
    if (bytes <= free_bytes) return true;
    if (!part_.fits(bytes)) return false;
    const HeartbeatScope scope(words_);
    return part_.add(bytes, true);
}

uint8_t* RowMaker::room(size_t bytes) {
    refit(between_, bytes);
    return between_.data();
}

}  // namespace standpipe
