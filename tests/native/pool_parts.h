// Parts of native tests of a pool: a program, paths as a job has them, and the threads that Python would run.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "pool/pool.h"

namespace standpipe {

constexpr uint8_t kByPillow = 7;  // pixels

// Resizes to `side` × `side` pixels.
inline std::shared_ptr<Program> program(int side) {
    auto made = std::make_shared<Program>();
    GeometryStage stage;
    stage.resize = GeometryStage::Resize::exact;
    stage.target = {side, side};
    Head& head = made->heads.front();
    head.passes = passes_of({stage});
    head.format.height = head.format.width = side;
    made->inputs.front().limits = {1 << 22, 100};
    return made;
}

// The files of a set of the cache without a row in it, in a folder that exists.
struct EmptySet {
    EmptySet(const std::string& folder, uint64_t rows) : records(rows) {
        const auto file = [&](const char* name) {
            return Descriptor(open((folder + name).c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
        };
        const CacheHeader header = cache_header(records, 0);
        const Descriptor table = file("/table");
        extent = file("/rows-000000");
        directory = Descriptor(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        if (pwrite(table.get(), header.data(), header.size(), 0) != static_cast<ssize_t>(header.size()) ||
            ftruncate(table.get(), static_cast<off_t>(kCacheHeaderBytes + records * kCacheEntryBytes)) != 0)
            throw std::runtime_error("no table");
    }

    // queue_bytes   of rows on their way to the spill
    // memory_bytes  that rows may take here
    std::shared_ptr<CacheStore> open_store(size_t queue_bytes = 0,
                                           uint64_t memory_bytes = uint64_t{1} << 20) const {
        auto store = std::make_shared<CacheStore>(directory.get(), records, 0, true, queue_bytes);
        store->add_extent(0, extent.get(), 0, memory_bytes, false);
        return store;
    }

    uint64_t records;
    Descriptor extent, directory;
};

// Paths as a job has them.
struct Files {
    explicit Files(const std::vector<std::string>& paths)
        : offset(paths.size(), 0), length(paths.size(), -1) {
        for (const std::string& path : paths) {
            blob.insert(blob.end(), path.begin(), path.end());
            ends.push_back(static_cast<int64_t>(blob.size()));
        }
    }
    int rows() const { return static_cast<int>(ends.size()); }
    FileInput input() const { return {blob.data(), ends.data(), offset.data(), length.data(), {}, {}}; }

    std::vector<uint8_t> blob;
    std::vector<int64_t> ends, offset, length;
};

// Plays Pillow: every picture has 8 × 8 pixels.
class PlayedPillow final : public Fallback {
    std::string decode(std::span<const uint8_t>, const Input&, const Reserve& reserve,
                       const Use& use) override {
        std::string text = reserve({8, 8}, rgb_.size());
        if (text.empty()) use({rgb_.data(), {8, 8}}, false);
        return text;
    }

    const std::vector<uint8_t> rgb_ = std::vector<uint8_t>(size_t{3} * 8 * 8, kByPillow);
};

// Plays the thread in Python that has Pillow decode. Throws std::bad_alloc where that thread would end.
inline void play_pillow(Pool& pool) {
    PlayedPillow pillow;
    for (ForeignRow row; pool.take_foreign(row);) pool.make_foreign(row, pillow);
}

}  // namespace standpipe
