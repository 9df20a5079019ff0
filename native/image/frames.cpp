// The memory of frames.
#include <algorithm>
#include <memory>
#include <utility>

#include "image/compose.h"

namespace standpipe {

std::shared_ptr<ImageFrame> FrameStore::take(Size size) {
    std::unique_ptr<ImageFrame> frame;
    {
        std::scoped_lock lock(mutex_);
        if (!free_.empty()) {
            frame = std::move(free_.back());
            free_.pop_back();
        }
    }
    if (!frame) frame = std::make_unique<ImageFrame>();
    frame->size = size;
    const size_t bytes = 3 * static_cast<size_t>(size.height) * static_cast<size_t>(size.width) + kSlack;
    if (frame->capacity < bytes) {
        bytes_ -= frame->capacity;
        frame->capacity = 0;
        frame->pixels = std::make_unique_for_overwrite<uint8_t[]>(std::max(bytes, usual_bytes_));
        frame->capacity = std::max(bytes, usual_bytes_);
        bytes_ += frame->capacity;
    }
    return {frame.release(), [store = shared_from_this()](ImageFrame* done) {
                std::unique_ptr<ImageFrame> own(done);
                std::scoped_lock lock(store->mutex_);
                store->free_.push_back(std::move(own));
            }};
}

}  // namespace standpipe
