// Slots that are lent when this process is forked: the child has them too, mapped to the same memory.
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
    // This process has no use for the slot any more.
    void let_go() noexcept;
    // Whether another process may have; asked by the one that began it, after let_go().
    bool is_held() noexcept;

  private:
    int id_ = -1;
    void* page_ = nullptr;
};

// Has a ring see to its lent slots at every fork(), until forget_at_fork().
void see_to_at_fork(SlotRing* ring);
void forget_at_fork(SlotRing* ring) noexcept;

// Why a slot is hidden from a forked child.
enum class HiddenFor : uint8_t { nothing, budget, system };

// Before a fork: keeps the words for HiddenFor::system, as a forked child can't make them.
void note_refusal(int error) noexcept;
// In a forked child: makes memory unreadable, and says why when somebody tries.
void hide(void* begin, size_t bytes, HiddenFor reason) noexcept;

}  // namespace standpipe
