// A side arena, memory for whole frames, that several processes share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace standpipe {

// Counts bytes as `SideArena` does, in memory that processes share, with an account for each process. When a
// process has ended in any way, another one clears its account. The lock and the turns continue without it.
//
// Only one thread at a time may use an account.
class SharedSide {
  public:
    // Makes a new one. Its cap is 0, so nothing fits yet. Throws std::system_error.
    explicit SharedSide(size_t accounts);
    // Opens the one in a file, which may be closed afterwards. Throws std::system_error.
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

    // Waits for `bytes` bytes, which must be at most the cap, in the order of the calls.
    //
    // has_turn    no other account was served since this account took bytes
    // keeps_turn  no other account is served until this one takes bytes again, or gives some back
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
