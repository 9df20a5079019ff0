// Stages that apply other stages: one list of several, or all of them in random order.
#include <algorithm>
#include <array>

#include "pixels/pixels.h"

namespace standpipe {
namespace {

size_t scratch_bytes(const PixelStage& stage, const Pixels& form) noexcept {
    size_t most = 0;
    for (const auto& list : stage.lists)
        for (const PixelStage& each : list) most = std::max(most, each.scratch_bytes(form));
    return most;
}

void apply_list(const std::vector<PixelStage>& list, Draws& draws, Canvas& canvas,
                uint8_t* scratch) noexcept {
    for (const PixelStage& each : list) each.apply(draws, canvas, scratch);
}

void apply_one(const PixelStage& stage, Draws& draws, Canvas& canvas, uint8_t* scratch) noexcept {
    const double drawn = draws.uniform();
    const auto chosen = std::ranges::upper_bound(stage.parameters, drawn) - stage.parameters.begin();
    const auto last = static_cast<ptrdiff_t>(stage.lists.size()) - 1;
    apply_list(stage.lists[static_cast<size_t>(std::min(chosen, last))], draws, canvas, scratch);
}

// Applies all lists in an order by Fisher and Yates, from the front.
void apply_all(const PixelStage& stage, Draws& draws, Canvas& canvas, uint8_t* scratch) noexcept {
    std::array<uint8_t, kMostShuffled> order;
    const size_t count = std::min(stage.lists.size(), kMostShuffled);
    for (size_t i = 0; i < count; ++i) order[i] = static_cast<uint8_t>(i);
    for (size_t i = 0; i < count; ++i) {
        std::swap(order[i], order[i + draws.below(count - i)]);
        apply_list(stage.lists[order[i]], draws, canvas, scratch);
    }
}

}  // namespace

constinit const PixelKind kChoice{"choice", 0, scratch_bytes, apply_one, true};
constinit const PixelKind kShuffle{"shuffle", 0, scratch_bytes, apply_all, true};

}  // namespace standpipe
