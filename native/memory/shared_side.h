// A side arena, memory for whole frames, that several processes share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace standpipe {

// Counts bytes as `SideArena` does, in memory that processes share, with an account for each of them. When
// one is gone, however it ended, whoever notices clears its account; the lock and the turns go on without it.
//
// Of one account, one thread at a time asks.
class SharedSide {
  public:
    // New, without a cap yet: nothing fits. Throws std::system_error.
    explicit SharedSide(size_t accounts);
    // The one in a file, which may be closed afterwards. Throws std::system_error.
    static std::shared_ptr<SharedSide> of(int file) {
        return std::shared_ptr<SharedSide>(new SharedSide(file));
    }
    ~SharedSide();
    SharedSide(const SharedSide&) = delete;
    SharedSide& operator=(const SharedSide&) = delete;

    int file() const noexcept { return file_; }  // -1 where it isn't this one's to close
    size_t accounts() const noexcept;

    uint64_t cap() const noexcept;
    void set_cap(uint64_t bytes);
    uint64_t used() const;
    uint64_t used_by(size_t account) const;
    uint64_t peak() const;

    // Waits for so many bytes, which must be at most the cap, in the order of asking.
    //
    // has_turn    nobody was served since this account took something
    // keeps_turn  nobody else shall be until it asks again, or gives back
    void take(size_t account, uint64_t bytes, bool has_turn, bool keeps_turn);
    void give_back(size_t account, uint64_t bytes, bool had_turn);
    void clear(size_t account);  // its process is gone

  private:
    struct State;
    struct Account;
    class Locked;

    explicit SharedSide(int file);
    void map(int file);
    Account& account(size_t number) const noexcept;

    int file_ = -1;
    size_t bytes_ = 0;
    State* state_ = nullptr;
};

}  // namespace standpipe
