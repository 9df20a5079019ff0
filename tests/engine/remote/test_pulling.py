"""Which maker makes which batch: order, lost makers, late batches and the limit of duplicates."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from standpipe.engine.remote.pulling import Pulling, Rules


def pulling(makers: int = 2, batches: int = 6, **rules: float) -> Pulling:
    made = Pulling(Rules(**rules))  # type: ignore[arg-type]
    for maker in range(makers):
        made.join(maker)
    for number in range(batches):
        made.want(number)
    return made


def learned(made: Pulling, seconds: float = 1.0) -> float:
    """Let maker 0 answer three batches before all others, each after ``seconds``; return the time."""
    now = 0.0
    for number in (-3, -2, -1):
        made.want(number)
    for number in (-3, -2, -1):
        assert (number, 0) in {*made.asks(now), *_asked(made)}
        now += seconds
        assert made.answer(0, number, now)
    return now


def _asked(made: Pulling) -> list[tuple[int, int]]:
    return [(number, maker) for number in made.wanted for maker in made.makers_of(number)]


def test_first_batches_go_to_idle_makers_and_each_has_the_next_in_hand() -> None:
    made = pulling()
    assert list(made.asks(0.0)) == [(0, 0), (1, 1), (2, 0), (3, 1)]
    assert list(made.asks(0.0)) == []
    assert made.answer(1, 1, 1.0)
    assert list(made.asks(1.0)) == [(4, 1)]


def test_batches_of_a_lost_maker_come_first() -> None:
    made = pulling()
    list(made.asks(0.0))
    assert made.leave(0) == [0, 2]
    assert made.answer(1, 1, 1.0)
    assert list(made.asks(1.0)) == [(0, 1)]
    assert made.wanted == [0, 2, 3, 4, 5]


def test_an_answer_of_a_maker_that_was_taken_for_lost_is_used_once() -> None:
    made = pulling(makers=1, batches=1)
    list(made.asks(0.0))
    made.leave(0)
    assert made.answer(0, 0, 1.0)
    assert not made.answer(0, 0, 1.0)
    made.join(0)
    assert list(made.asks(1.0)) == []


def test_a_late_batch_is_made_twice_and_the_first_answer_counts() -> None:
    made = pulling(makers=1, batches=0, hands=1, late=3, least_s=1)
    now = learned(made)
    made.want(0)
    assert list(made.asks(now)) == [(0, 0)]
    made.join(1)
    assert made.due_s(now) == now + 3
    assert list(made.asks(now + 2.9)) == []
    assert list(made.asks(now + 3)) == [(0, 1)]
    assert made.duplicates == 1
    assert made.due_s(now + 3) is None
    assert made.answer(1, 0, now + 4)
    assert not made.answer(0, 0, now + 5)
    assert made.answers == 4


def test_a_batch_behind_a_late_one_is_late_too() -> None:
    made = pulling(makers=1, batches=0, late=3, least_s=1)
    now = learned(made)
    made.want(0)
    made.want(1)
    list(made.asks(now))
    made.join(1)
    made.join(2)
    made._credit = 2.0
    assert sorted(made.asks(now + 3)) == [(0, 1), (1, 2)]


def test_a_dropped_batch_is_never_asked_for() -> None:
    made = pulling(makers=1, batches=3, hands=1)
    list(made.asks(0.0))
    made.drop(0)
    made.drop(1)
    assert not made.answer(0, 0, 1.0)
    assert list(made.asks(1.0)) == [(2, 0)]


@given(
    st.lists(st.sampled_from(["answer", "slow", "leave", "join", "want"]), max_size=120),
    st.randoms(use_true_random=False),
)
def test_every_batch_is_answered_once_and_duplicates_stay_in_their_share(
    events: list[str], random: object
) -> None:
    made = pulling(makers=3, batches=5)
    accepted: list[int] = []
    asked = [*made.asks(0.0)]
    wanted, makers, now = 5, 3, 0.0
    for event in [*events, *["join"], *["answer"] * 60]:
        now += 5.0 if event == "slow" else 0.3
        if event == "answer" and asked:
            number, maker = asked.pop(random.randrange(len(asked)))  # type: ignore[attr-defined]
            if made.answer(maker, number, now):
                accepted.append(number)
        elif event == "leave" and made.makers:
            gone = made.makers[0]
            made.leave(gone)
            asked = [each for each in asked if each[1] != gone]
        elif event == "join":
            made.join(makers)
            makers += 1
        elif event == "want":
            made.want(wanted)
            wanted += 1
        asked += made.asks(now)
    while asked:
        number, maker = asked.pop(0)
        accepted += [number] * made.answer(maker, number, now)
        asked += made.asks(now)
    assert sorted(accepted) == list(range(wanted))
    assert made.wanted == []
    assert made.duplicates <= 1 + made.rules.share * made.answers
