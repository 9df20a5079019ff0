"""Groups choose, shuffle or skip their transforms by the group's own random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

import standpipe as sp
from draws import Draws, Sample
from reference import delivered, explain_difference, in_order
from standpipe.spec import UInt8Array
from standpipe.transform import what_draws

IMAGES = np.random.default_rng(4).integers(90, 130, (80, 6, 5, 3), np.uint8)
PARTS = (sp.RandomInvert(0.7), sp.RandomSolarize(110, 0.4), sp.RandomEqualize(1))
CHANGES: tuple[Any, ...] = (ImageOps.invert, lambda image: ImageOps.solarize(image, 110), ImageOps.equalize)


def applied(number: int, image: UInt8Array, draws: Draws) -> UInt8Array:
    """One of ``PARTS``, with the next random numbers of its group."""
    takes_place = draws.uniform() < PARTS[number].p
    return np.asarray(CHANGES[number](Image.fromarray(image))) if takes_place else image


def apply_all(image: UInt8Array, draws: Draws) -> UInt8Array:
    if draws.uniform() < 0.6:
        draws.uniform()  # which list: there is one
        for number in range(3):
            image = applied(number, image, draws)
    return image


def apply_one(image: UInt8Array, draws: Draws) -> UInt8Array:
    draws.uniform()  # whether it takes place
    drawn = draws.uniform()
    return applied(0 if drawn < 0.5 else 1 if drawn < 0.75 else 2, image, draws)


def apply_shuffled(image: UInt8Array, draws: Draws) -> UInt8Array:
    draws.uniform()
    order = [0, 1, 2]
    for place in range(3):
        other = place + draws.below(3 - place)
        order[place], order[other] = order[other], order[place]
        image = applied(order[place], image, draws)
    return image


@pytest.mark.parametrize(
    ("group", "kind", "by_hand"),
    [
        (sp.RandomApply(PARTS, p=0.6), 13, apply_all),
        (sp.RandomChoice(PARTS, p=(2, 1, 1)), 14, apply_one),
        (sp.RandomOrder(PARTS), 15, apply_shuffled),
    ],
)
def test_a_group_applies_what_its_numbers_say(group: Any, kind: int, by_hand: Any) -> None:
    rows = delivered(in_order(sp.Arrays(image=IMAGES), group, seed=5), epoch=2)
    for position, (image, row) in enumerate(zip(IMAGES, rows, strict=True)):
        wanted = by_hand(image, Sample(5, 2, position).draws(kind << 16))
        assert explain_difference(row, wanted) == ""


def test_groups_contain_groups() -> None:
    inner = sp.RandomChoice([sp.RandomInvert(1)])
    rows = delivered(in_order(sp.Arrays(image=IMAGES), sp.RandomApply([inner, sp.RandomOrder([inner])], p=1)))
    assert np.array_equal(rows, IMAGES)  # inverted twice


@pytest.mark.parametrize(
    ("group", "is_random", "moves"),
    [
        (sp.RandomApply([sp.RandomInvert(1)], p=1), False, False),
        (sp.RandomApply([sp.RandomInvert(1)]), True, False),
        (sp.RandomApply([sp.RandomHorizontalFlip(1)], p=1), False, True),
        (sp.RandomApply([sp.RandomHorizontalFlip(1)]), True, True),
        (sp.RandomChoice([sp.RandomInvert(1)]), False, False),
        (sp.RandomChoice([sp.RandomInvert(1), sp.RandomVerticalFlip(1)]), True, True),
        (sp.RandomOrder([sp.RandomVerticalFlip(1)]), False, True),
    ],
)
def test_a_group_says_whether_it_draws_and_moves_pixels(group: Any, is_random: bool, moves: bool) -> None:
    assert (what_draws(group) is not None) == is_random
    assert group.moves[:2] == (("image", "mask") if moves else ())


@pytest.mark.parametrize(
    ("group", "says"),
    [
        (sp.RandomApply([]), "at least one transform"),
        (sp.RandomChoice([sp.RandomHorizontalFlip()]), "move it out of the group"),
        (
            sp.RandomChoice([sp.RandomShortestSize((3, 4))]),
            r"of A or \[B, A\], write RandomApply\(\[B\]\), then A",
        ),
        (
            sp.RandomApply([sp.RandomHorizontalFlip(), sp.RandomInvert()]),
            "can only be in a RandomApply that has nothing else",
        ),
        (sp.RandomOrder([sp.RandomApply([sp.RandomHorizontalFlip()])]), "move it out of the group"),
        (sp.RandomApply([sp.RandomHorizontalFlip(3)]), r"RandomHorizontalFlip\(p=3\)"),
        (sp.RandomApply([sp.Resize((3, 4))]), "size isn't fixed"),
        (sp.RandomApply(sp.RandomInvert()), "give it a list"),  # type: ignore[arg-type]
        (sp.RandomApply([sp.RandomInvert(2)]), "RandomInvert"),
        (sp.RandomApply([sp.RandomInvert()], p=-1), r"RandomApply\(p=-1\)"),
        (sp.RandomChoice(PARTS, p=(1, 2)), "a list of 3 weights"),
        (sp.RandomChoice(PARTS, p=(0, 0, 0)), "not all of them 0"),
        (sp.RandomChoice(PARTS, p=(1, -1, 1)), "none below 0"),
        (sp.RandomOrder(PARTS * 30), "at most 64"),
        (sp.RandomOrder([sp.GaussianBlur(31)]), "needs images of more than 15 pixels"),
    ],
)
def test_groups_that_cannot_work_are_refused(group: Any, says: str) -> None:
    with pytest.raises(sp.PlanError, match=says):
        in_order(sp.Arrays(image=IMAGES), group).plan()
