#include "image/polygons.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "image/trace.h"

namespace standpipe {
namespace {

constexpr int64_t kMostPixels = int64_t{1} << 28;  // of the columns of runs that are inside
constexpr float kEnd = std::numeric_limits<float>::quiet_NaN();

struct Place {
    double x, y;
};

// Calls `each` with the points of each ring, x and y by turns, without the end.
template <typename Number, typename Each>
void for_rings(std::span<Number> points, Each each) {
    for (size_t begin = 0, at = 0; at < points.size(); at += 2)
        if (std::isnan(points[at])) {
            each(points.subspan(begin, at - begin));
            begin = at + 2;
        }
}

std::span<const float> shape(const Shapes& shapes, size_t i) {
    const auto begin = static_cast<size_t>(i == 0 ? 0 : shapes.ends[i - 1]);
    return shapes.points.subspan(2 * begin, 2 * (static_cast<size_t>(shapes.ends[i]) - begin));
}

// Columns of pixels, with the outline of those that are set.
class Columns {
  public:
    Columns(int64_t first, int64_t columns, int64_t height)
        : first_(first), columns_(columns), height_(height), pixels_(static_cast<size_t>(columns * height)) {}

    // Sets `count` pixels from number `at` on, which counts down the columns of the whole picture.
    void set(int64_t at, int64_t count) {
        std::fill_n(pixels_.begin() + (at - first_ * height_), count, kSet);
    }

    std::vector<float> outline() {
        for (int64_t x = 0; x < columns_; ++x)
            for (int64_t y = 0; y < height_; ++y)
                if (is_set(x, y) && !is_set(x, y - 1) && pixel(x, y) == kSet) follow(x, y);
        return std::move(points_);
    }

  private:
    static constexpr uint8_t kSet = 1, kFollowed = 2;

    uint8_t& pixel(int64_t x, int64_t y) { return pixels_[static_cast<size_t>(x * height_ + y)]; }
    bool is_set(int64_t x, int64_t y) {
        return x >= 0 && x < columns_ && y >= 0 && y < height_ && pixel(x, y) != 0;
    }

    // Follows a ring from the upper edge of a pixel on, with set pixels on the right. Notes each edge above a
    // pixel, of which every ring has one.
    void follow(int64_t x, int64_t y) {
        const int64_t begin_x = x, begin_y = y;
        int64_t dx = 1, dy = 0;
        do {
            if (dx == 1) pixel(x, y) = kFollowed;
            x += dx, y += dy;
            // The pixels ahead, on the right and on the left of the way.
            const int64_t right_x = x + (dx - dy - 1) / 2, right_y = y + (dx + dy - 1) / 2;
            const int64_t left_x = x + (dx + dy - 1) / 2, left_y = y + (dy - dx - 1) / 2;
            const int64_t old_x = dx, old_y = dy;
            if (!is_set(right_x, right_y)) dx = -old_y, dy = old_x;
            else if (is_set(left_x, left_y)) dx = old_y, dy = -old_x;
            else continue;
            points_.push_back(static_cast<float>(first_ + x));
            points_.push_back(static_cast<float>(y));
        } while (x != begin_x || y != begin_y || dx != 1);
        points_.insert(points_.end(), 2, kEnd);
    }

    const int64_t first_, columns_, height_;
    std::vector<uint8_t> pixels_;
    std::vector<float> points_;
};

Place moved_by(Place at, const double* m) {
    const double depth = m[6] * at.x + m[7] * at.y + m[8];
    return {(m[0] * at.x + m[1] * at.y + m[2]) / depth, (m[3] * at.x + m[4] * at.y + m[5]) / depth};
}

// Cuts off what is beyond a line: `side` · `axis` of a place is at most side · limit.
void cut_off(std::vector<Place>& ring, double Place::* axis, double side, double limit,
             std::vector<Place>& spare) {
    const auto beyond = [&](const Place& at) { return side * (at.*axis - limit); };
    if (std::none_of(ring.begin(), ring.end(), [&](const Place& at) { return beyond(at) > 0; })) return;
    spare.clear();
    for (size_t i = 0; i < ring.size(); ++i) {
        const Place &from = ring[i == 0 ? ring.size() - 1 : i - 1], &to = ring[i];
        const double before = beyond(from), after = beyond(to);
        if ((before > 0) != (after > 0)) {
            const double part = before / (before - after);
            Place edge{from.x + part * (to.x - from.x), from.y + part * (to.y - from.y)};
            edge.*axis = limit;
            spare.push_back(edge);
        }
        if (after <= 0) spare.push_back(to);
    }
    ring.swap(spare);
}

// Finds the pixels whose centres are inside of shapes.
class Scanner {
  public:
    Scanner(int64_t height, int64_t width) : height_(height), width_(width) {}

    // Appends the spans of a shape, and returns the number of their pixels.
    int64_t scan(std::span<const float> points, double ratio, std::vector<Span>& spans) {
        crossings_.clear();
        for_rings(points, [&](std::span<const float> ring) {
            for (size_t i = 0; i < ring.size(); i += 2) {
                const size_t last = i == 0 ? ring.size() - 2 : i - 2;
                cross({ring[last] / ratio, ring[last + 1] / ratio}, {ring[i] / ratio, ring[i + 1] / ratio});
            }
        });
        std::sort(crossings_.begin(), crossings_.end());
        int64_t pixels = 0, begin = 0;
        int winding = 0;
        for (const uint64_t each : crossings_) {
            const auto row = static_cast<int64_t>(each >> 32),
                       column = static_cast<int64_t>(each >> 1 & kMost);
            if (winding == 0) begin = column;
            winding += (each & 1) != 0 ? 1 : -1;
            if (winding == 0 && column > begin) {
                spans.push_back({row, begin, column});
                pixels += column - begin;
            }
        }
        return pixels;
    }

  private:
    static constexpr uint64_t kMost = 0x7fffffff;

    // The first number whose pixel's centre is at or behind a place, from 0 to `most`.
    static int64_t first_behind(double at, int64_t most) {
        return static_cast<int64_t>(std::clamp(std::ceil(at - 0.5), 0.0, static_cast<double>(most)));
    }

    // Notes where an edge crosses the middle of each row: the row, the first column behind it, and its
    // direction.
    void cross(Place from, Place to) {
        const bool down = to.y > from.y;
        if (!down) std::swap(from, to);
        const int64_t first = first_behind(from.y, height_), stop = first_behind(to.y, height_);
        for (int64_t row = first; row < stop; ++row) {
            const double part = (static_cast<double>(row) + 0.5 - from.y) / (to.y - from.y);
            const int64_t column = first_behind(from.x + part * (to.x - from.x), width_);
            crossings_.push_back(static_cast<uint64_t>(row) << 32 | static_cast<uint64_t>(column) << 1 |
                                 static_cast<uint64_t>(down));
        }
    }

    const int64_t height_, width_;
    std::vector<uint64_t> crossings_;
};

}  // namespace

std::optional<std::vector<int64_t>> run_lengths(std::string_view text) {
    std::vector<int64_t> runs;
    for (size_t at = 0; at < text.size();) {
        uint64_t value = 0;
        unsigned shift = 0, letter = 0;
        do {
            if (at == text.size() || shift > 55) return {};
            letter = static_cast<unsigned char>(text[at++]) - 48u;
            if (letter > 63) return {};
            value |= static_cast<uint64_t>(letter & 31) << shift;
            shift += 5;
        } while ((letter & 32) != 0);
        if ((letter & 16) != 0) value |= ~uint64_t{0} << shift;
        // Lengths from the third on are differences from the one two before.
        if (runs.size() > 2) value += static_cast<uint64_t>(runs[runs.size() - 2]);
        runs.push_back(static_cast<int64_t>(value));
    }
    return runs;
}

std::optional<std::vector<float>> outline(std::span<const int64_t> runs, int64_t height, int64_t width) {
    if (height <= 0 || width <= 0 || width > std::numeric_limits<int32_t>::max() ||
        height > std::numeric_limits<int32_t>::max())
        return {};
    int64_t left = height * width, first = -1, last = 0;
    for (size_t i = 0; i < runs.size(); ++i) {
        if (runs[i] < 0 || runs[i] > left) return {};
        if (i % 2 == 1 && runs[i] > 0) {
            if (first < 0) first = height * width - left;
            last = height * width - left + runs[i] - 1;
        }
        left -= runs[i];
    }
    if (left != 0) return {};
    if (first < 0) return std::vector<float>{};
    const int64_t column = first / height, columns = last / height + 1 - column;
    if (columns > kMostPixels / height) return {};
    Columns pixels(column, columns, height);
    int64_t at = 0;
    for (size_t i = 0; i < runs.size(); at += runs[i++])
        if (i % 2 == 1) pixels.set(at, runs[i]);
    return pixels.outline();
}

void turn_alike(std::span<float> points) noexcept {
    for_rings(points, [](std::span<float> ring) {
        double area = 0;
        for (size_t i = 0, last = ring.size() - 2; i < ring.size(); last = i, i += 2)
            area +=
                (static_cast<double>(ring[last]) - ring[0]) * (static_cast<double>(ring[i + 1]) - ring[1]) -
                (static_cast<double>(ring[i]) - ring[0]) * (static_cast<double>(ring[last + 1]) - ring[1]);
        if (area >= 0) return;
        for (size_t i = 0, j = ring.size() - 2; i < j; i += 2, j -= 2) {
            std::swap(ring[i], ring[j]);
            std::swap(ring[i + 1], ring[j + 1]);
        }
    });
}

MovedShapes moved(Shapes shapes, std::span<const int64_t> rows, std::span<const double> moves,
                  size_t moves_each, bool cut) {
    MovedShapes found;
    found.points.reserve(shapes.points.size());
    std::vector<Place> ring, spare;
    for (size_t i = 0; i < shapes.ends.size(); ++i) {
        constexpr double kFar = std::numeric_limits<double>::infinity();
        std::array<double, 4> hull{kFar, kFar, -kFar, -kFar};
        const double* of_row = moves.data() + static_cast<size_t>(rows[i]) * moves_each * kMoveNumbers;
        for_rings(shape(shapes, i), [&](std::span<const float> points) {
            ring.clear();
            for (size_t at = 0; at < points.size(); at += 2) ring.push_back({points[at], points[at + 1]});
            for (size_t move = 0; move < moves_each; ++move) {
                const double* m = of_row + move * kMoveNumbers;
                for (Place& at : ring) at = moved_by(at, m);
                std::erase_if(ring, [](Place at) { return !std::isfinite(at.x) || !std::isfinite(at.y); });
                if (!cut) continue;
                cut_off(ring, &Place::x, -1, 0, spare);
                cut_off(ring, &Place::x, 1, m[10], spare);
                cut_off(ring, &Place::y, -1, 0, spare);
                cut_off(ring, &Place::y, 1, m[9], spare);
            }
            if (ring.size() < 3) return;
            for (const Place at : ring) {
                hull = {std::min(hull[0], at.x), std::min(hull[1], at.y), std::max(hull[2], at.x),
                        std::max(hull[3], at.y)};
                found.points.push_back(static_cast<float>(at.x));
                found.points.push_back(static_cast<float>(at.y));
            }
            found.points.insert(found.points.end(), 2, kEnd);
        });
        found.ends.push_back(static_cast<int64_t>(found.points.size() / 2));
        for (const double side : hull)
            found.hulls.push_back(hull[0] > hull[2] ? 0 : static_cast<float>(side));
    }
    return found;
}

std::vector<Span> pixels_of(Shapes shapes, size_t i, int64_t height, int64_t width) {
    std::vector<Span> spans;
    Scanner(height, width).scan(shape(shapes, i), 1, spans);
    return spans;
}

std::vector<float> left_over(Shapes shapes, std::span<const int64_t> layers, std::span<const int64_t> sizes) {
    constexpr float kFar = std::numeric_limits<float>::infinity();
    std::vector<float> boxes;
    std::vector<uint8_t> taken;
    for (size_t i = 0, stop = 0; i < layers.size(); i = stop) {
        const int64_t height = sizes[2 * i], width = sizes[2 * i + 1];
        const auto is_above = [&](size_t at) { return (layers[at] & 1) != 0; };
        for (stop = i; stop < layers.size() && layers[stop] >> 1 == layers[i] >> 1; ++stop)
            boxes.insert(boxes.end(), {-kFar, -kFar, kFar, kFar});
        if (is_above(i) || !is_above(stop - 1)) continue;
        taken.assign(static_cast<size_t>(height * width), 0);
        for (size_t at = i; at < stop; ++at)
            for (const Span& span : is_above(at) ? pixels_of(shapes, at, height, width) : std::vector<Span>())
                std::fill_n(taken.begin() + span.row * width + span.begin, span.end - span.begin, 1);
        for (size_t at = i; at < stop && !is_above(at); ++at) {
            std::array<float, 4> box{kFar, kFar, -kFar, -kFar};
            bool loses = false;
            for (const Span& span : pixels_of(shapes, at, height, width)) {
                const auto row = taken.begin() + span.row * width;
                const auto begin = row + span.begin, end = row + span.end;
                loses = loses || std::find(begin, end, 1) != end;
                const auto first = std::find(begin, end, 0);
                if (first == end) continue;
                const auto last =
                    std::find(std::make_reverse_iterator(end), std::make_reverse_iterator(begin), 0);
                box = {std::min(box[0], static_cast<float>(first - row)),
                       std::min(box[1], static_cast<float>(span.row)),
                       std::max(box[2], static_cast<float>(last.base() - row)),
                       std::max(box[3], static_cast<float>(span.row + 1))};
            }
            if (loses) std::copy(box.begin(), box.end(), boxes.begin() + static_cast<ptrdiff_t>(4 * at));
        }
    }
    return boxes;
}

template <typename Value>
void draw(Shapes shapes, std::span<const int64_t> pictures, std::span<const int64_t> values,
          std::span<const int64_t> layers, double ratio, Masks<Value> out) {
    std::fill(out.values.begin(), out.values.end(), Value{0});
    Scanner scanner(static_cast<int64_t>(out.height), static_cast<int64_t>(out.width));
    struct Drawn {
        int64_t layer, pixels;
        size_t begin, end;  // among the spans
        Value value;
    };
    std::vector<Drawn> drawn;
    std::vector<Span> spans;
    for (size_t i = 0; i < pictures.size();) {
        const int64_t picture = pictures[i];
        drawn.clear(), spans.clear();
        for (; i < pictures.size() && pictures[i] == picture; ++i) {
            const size_t begin = spans.size();
            const int64_t pixels = scanner.scan(shape(shapes, i), ratio, spans);
            drawn.push_back({layers[i], pixels, begin, spans.size(), static_cast<Value>(values[i])});
        }
        std::stable_sort(drawn.begin(), drawn.end(), [](const Drawn& a, const Drawn& b) {
            return a.layer < b.layer || (a.layer == b.layer && a.pixels > b.pixels);
        });
        Value* const pixels = out.values.data() + static_cast<size_t>(picture) * out.height * out.width;
        for (const Drawn& each : drawn)
            for (size_t span = each.begin; span < each.end; ++span) {
                Value* const row = pixels + static_cast<size_t>(spans[span].row) * out.width;
                std::fill(row + spans[span].begin, row + spans[span].end, each.value);
            }
    }
}

template void draw(Shapes, std::span<const int64_t>, std::span<const int64_t>, std::span<const int64_t>,
                   double, Masks<uint8_t>);
template void draw(Shapes, std::span<const int64_t>, std::span<const int64_t>, std::span<const int64_t>,
                   double, Masks<int16_t>);

}  // namespace standpipe
