// Tracks slots that are lent when this process is forked: the child maps the same memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace standpipe {

class SlotRing;

// A page of System V shared memory that forked children inherit, until they let go or end. The kernel counts
// the processes that have it attached. It takes no descriptor, of which there may be few, and which a child
// may close.
class Inherited {
  public:
    Inherited() = default;
    Inherited(Inherited&& other) noexcept { *this = static_cast<Inherited&&>(other); }
    Inherited& operator=(Inherited&& other) noexcept;
    ~Inherited() { let_go(); }

    // Returns 0, or the error number of the system call that was refused.
    int begin() noexcept;
    bool begun() const noexcept { return page_ != nullptr; }
    // Ends this process's use of the slot.
    void let_go() noexcept;
    // Returns whether another process may still use the slot. Only the process that began it asks, after
    // let_go().
    bool is_held() noexcept;

  private:
    int id_ = -1;
    void* page_ = nullptr;
};

// Has a ring see to its lent slots at every fork(), until forget_at_fork().
void see_to_at_fork(SlotRing* ring);
void forget_at_fork(SlotRing* ring) noexcept;

// The reason why a slot is hidden from a forked child.
enum class HiddenFor : uint8_t { nothing, budget, system };

// Prepares the message of HiddenFor::system before a fork, as a forked child can't.
void note_refusal(int error) noexcept;
// Makes memory unreadable in a forked child, and prints the reason when code tries to read it.
void hide(void* begin, size_t bytes, HiddenFor reason) noexcept;

}  // namespace standpipe
