"""Which maker makes which batch: order, lost makers, late batches and the limit of duplicates."""

from __future__ import annotations

from hypothesis import given, strategies as st

from standpipe.engine.remote.pulling import Pulling, Rules


def pulling(makers: int = 2, batches: int = 6, window: int = 0, **rules: float) -> Pulling:
    made = Pulling(Rules(**rules), window)  # type: ignore[arg-type]
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
        assert list(made.asks(now)) == [(number, 0)]
        now += seconds
        assert made.answer(0, number, now)
    return now


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
    assert sorted(made.asks(now + 3)) == [(0, 1), (1, 2)]


def test_a_late_batch_is_made_twice_when_it_is_needed_soon_or_nothing_else_is_made() -> None:
    made = pulling(makers=1, batches=1, window=8)
    assert list(made.asks(0.0)) == [(0, 0)]
    made.join(1)
    made.want(5)
    assert list(made.asks(100.0)) == [(5, 1)]
    made.join(2)
    assert list(made.asks(101.0)) == []
    made.want(6)
    assert list(made.asks(101.0)) == [(6, 2)]
    made.join(3)
    assert list(made.asks(101.0)) == [(0, 3)]

    made = pulling(makers=2, batches=2, window=8)
    assert list(made.asks(0.0)) == [(0, 0), (1, 1)]
    assert made.answer(1, 1, 1.0)
    assert list(made.asks(100.0)) == [(0, 1)]


def test_loaders_that_share_makers_begin_with_others_and_leave_room_for_one_another() -> None:
    asked = []
    for loader in range(2):
        made = Pulling(loaders=2, loader=loader)
        for maker in range(4):
            made.join(maker)
        for number in range(8):
            made.want(number)
        asked.append([maker for _, maker in made.asks(0.0)])
    assert asked == [[0, 2, 1, 3], [1, 3, 0, 2]]  # half of their eight hands


def test_a_slow_maker_gets_a_batch_after_it_was_idle_for_as_long() -> None:
    made = pulling(batches=2, hands=1)
    list(made.asks(0.0))
    made.answer(0, 0, 1.0)
    for number in range(2, 12):
        made.want(number)
        assert list(made.asks(float(number) - 1)) == [(number, 0)]
        assert made.answer(0, number, float(number))
    assert made.answer(1, 1, 11.0)
    made.want(12)
    assert list(made.asks(11.0)) == [(12, 0)]
    assert made.answer(0, 12, 12.0)
    made.want(13)
    assert list(made.asks(22.0)) == [(13, 0)]
    made.want(14)
    assert list(made.asks(22.0)) == [(14, 1)]


def test_entries_dont_grow_with_answers() -> None:
    made = pulling(batches=0)
    counts = []
    for number in range(300):
        made.want(number)
        for asked, maker in made.asks(float(number)):
            assert made.answer(maker, asked, number + 0.5)
        counts.append(made.entries)
    assert counts[-1] == counts[99] == 2 + made.rules.remembered
    assert made.tasks == 0


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
    assert made.duplicates <= made.rules.burst + made.rules.share * made.answers
