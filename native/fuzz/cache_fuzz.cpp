// Fuzzes the table of a cache's set, and an extent of it. Reads must give what the entry's checksum says, and
// rows that are stored over the bytes must be found.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "cache/store.h"
#include "fuzz/harness.h"
#include "system/checksum.h"

namespace standpipe {
namespace {

constexpr uint64_t kRecords = 4, kSalt = 0x5A17;
constexpr size_t kHead = 64;  // of the header; the rest of it is zeros
constexpr size_t kMostRead = 1 << 20;

// A set's folder, made anew for each input.
class Folder {
  public:
    Folder() : path_("/tmp/cache_fuzz-XXXXXX") {
        check(mkdtemp(path_.data()) != nullptr, "no folder");
        folder_ = Descriptor(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() {
        for (const char* name : {"table", "rows-000000", "rows-000001"}) unlinkat(get(), name, 0);
        rmdir(path_.c_str());
    }

    int get() const noexcept { return folder_.get(); }
    Descriptor write(const char* name, Bytes bytes) const {
        // Not cut to nothing first: ext4 then waits for the disk when it's closed.
        Descriptor file(openat(get(), name, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
        check(pwrite(file.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()) &&
                  ftruncate(file.get(), static_cast<off_t>(bytes.size())) == 0,
              "no file");
        return file;
    }

  private:
    std::string path_;
    Descriptor folder_;
};

// The entry as it is, with its check made right for that record.
void mend(std::span<uint8_t> entry, uint64_t record) {
    const uint64_t key = mix(kSalt, record);
    std::memset(entry.data(), 0, 4);
    std::vector<uint8_t> all(entry.begin(), entry.end());
    all.insert(all.end(), reinterpret_cast<const uint8_t*>(&key), reinterpret_cast<const uint8_t*>(&key + 1));
    const uint32_t right = checksum(all);
    std::memcpy(entry.data(), &right, sizeof right);
}

void check_rows(const Folder& folder, Bytes extent) {
    folder.write("rows-000000", extent);
    const Descriptor mine = folder.write("rows-000001", Bytes(reinterpret_cast<const uint8_t*>("rows"), 4));
    CacheStore store(folder.get(), kRecords, kSalt, true, 0);
    for (uint64_t record = 0; record < kRecords; ++record) {
        const auto row = store.find(record);
        if (row) {
            check(row->length > 0 && row->length <= kMostCachedBytes && row->extent < kMostExtents &&
                      row->offset + row->length <= kMostExtentBytes,
                  "a row that can't be");
        }
        if (row && row->length <= kMostRead) {
            std::vector<uint8_t> bytes(row->length);
            if (store.read(record, *row, bytes.data()))
                check(checksum(bytes) == row->checksum, "bytes that weren't stored");
            else check(!store.find(record), "a row is found that can't be read");
        }
        const uint8_t content[] = {1, 2, 3, static_cast<uint8_t>(record)};
        check(store.add_extent(1, mine.get(), 4 * record, 4 * record + 4, false), "no room");
        const auto there = store.find(record);
        check(
            store.put(record, content, {}, false, false, there ? std::optional(there->stamp) : std::nullopt),
            "a row isn't stored");
        const auto stored = store.find(record);
        uint8_t bytes[4] = {};
        check(stored && stored->length == 4 && store.read(record, *stored, bytes) &&
                  std::ranges::equal(bytes, content),
              "what was stored isn't found");
    }
}

}  // namespace
}  // namespace standpipe

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace standpipe;
    static const Folder folder;
    const Bytes input(data, size);
    const CacheHeader right = cache_header(kRecords, kSalt);

    CacheHeader header{};
    std::ranges::copy(input.first(std::min(size, kHead)), header.begin());
    check(wrong_with_header(header, kRecords, kSalt).text.empty() == (header == right),
          "another header is taken");
    check(!wrong_with_header(input.first(std::min<size_t>(size, 4095)), kRecords, kSalt).text.empty(),
          "a header that is cut off is taken");

    std::vector<uint8_t> table(right.begin(), right.end());
    const Bytes rest = input.subspan(std::min(size, kHead));
    const Bytes entries = rest.first(std::min<size_t>(rest.size(), kRecords * kCacheEntryBytes));
    table.insert(table.end(), entries.begin(), entries.end());
    const Bytes extent = rest.subspan(entries.size());
    folder.write("table", table);
    check_rows(folder, extent);

    table.resize(kCacheHeaderBytes + kRecords * kCacheEntryBytes);
    for (uint64_t record = 0; record < kRecords; ++record)
        mend(std::span(table).subspan(kCacheHeaderBytes + record * kCacheEntryBytes, kCacheEntryBytes),
             record);
    folder.write("table", table);
    check_rows(folder, extent);
    return 0;
}
