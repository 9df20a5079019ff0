"""The ten subjects of synthetic photos, each a few parts drawn back to front."""

from __future__ import annotations

from typing import NamedTuple


class Part(NamedTuple):
    """One shape.

    x, y    centre; in a subject's own units, y downwards, the subject about 1 high
    rx, ry  half axes, in the same units
    angle   radians, clockwise
    power   2 an ellipse, 4 a box with round corners
    colour  0 the subject's first colour, 1 its second, 2 nearly black, 3 nearly white
    """

    x: float
    y: float
    rx: float
    ry: float
    angle: float = 0.0
    power: int = 2
    colour: int = 0


# The numbers of each part, in the order of its fields; those that are left out have their defaults.
NAMED = {
    "dog": """
        .43 -.12 .16 .035 -.7; -.22 .32 .05 .2 .1; .28 .32 .05 .2 -.1; .02 .05 .38 .19; -.14 .34 .055 .2;
        .2 .34 .055 .2; -.33 -.14 .12 .2 .7; -.42 -.24 .16 .14; -.55 -.19 .09 .065 0 2 1;
        -.32 -.23 .055 .13 -.3 2 1; -.63 -.21 .025 .02 0 2 2; -.47 -.27 .02 .02 0 2 2
    """,
    "bird": """
        .42 .2 .24 .055 .5 2 1; .02 .38 .01 .13 0 4 2; .1 .38 .01 .13 0 4 2; .05 .05 .3 .21 .45; -.22 -.2 .14 .13;
        .12 .05 .25 .11 .6 2 1; -.38 -.19 .07 .025 .1 2 2; -.26 -.23 .022 .022 0 2 3; -.26 -.23 .014 .014 0 2 2
    """,
    "fish": """
        .46 -.1 .16 .06 -.7 2 1; .46 .1 .16 .06 .7 2 1; .02 -.18 .2 .09 .1 2 1; 0 0 .42 .2; -.12 0 .03 .17 .1 2 1;
        .06 0 .025 .17 .1 2 1; .2 0 .02 .13 .1 2 1; -.02 .07 .11 .045 .4 2 1; -.29 -.05 .035 .035 0 2 3;
        -.29 -.05 .02 .02 0 2 2
    """,
    "flower": """
        .02 .42 .02 .4 -.05 4 1; .16 .4 .16 .05 -.5 2 1; .27 -.1 .2 .09; .13 .13 .2 .09 1.05; -.13 .13 .2 .09 2.09;
        -.27 -.1 .2 .09; -.13 -.33 .2 .09 1.05; .13 -.33 .2 .09 2.09; 0 -.1 .12 .11 0 2 1
    """,
    "tree": """
        0 .35 .05 .32 0 4 1; .13 .12 .03 .18 .7 4 1; -.2 -.08 .23 .18; .22 -.05 .22 .17; 0 -.28 .26 .22;
        -.12 -.18 .12 .1; .14 -.2 .14 .12; .02 0 .16 .11
    """,
    "house": """
        .24 -.42 .05 .13 0 4 1; -.19 -.25 .34 .05 -.62 4 1; .19 -.25 .34 .05 .62 4 1; 0 -.12 .25 .19 .785 4;
        0 .18 .4 .28 0 4; .02 .29 .07 .17 0 4 1; -.24 .13 .085 .085 0 4 3; -.24 .13 .07 .07 0 4 2;
        .25 .13 .085 .085 0 4 3; .25 .13 .07 .07 0 4 2
    """,
    "car": """
        0 .24 .56 .05 0 2 2; .02 -.12 .3 .17 0 4; -.11 -.11 .12 .1 0 4 2; .16 -.11 .12 .1 0 4 2; 0 .08 .55 .15 0 4;
        0 .12 .55 .02 0 4 1; -.51 .04 .03 .035 0 2 3; -.32 .2 .12 .12 0 2 2; .33 .2 .12 .12 0 2 2;
        -.32 .2 .06 .06 0 2 3; .33 .2 .06 .06 0 2 3
    """,
    "mushroom": """
        0 .22 .1 .3 .03 4 3; 0 0 .36 .07 0 2 3; 0 -.13 .4 .2; -.18 -.16 .05 .04 0 2 3; .05 -.23 .06 .04 0 2 3;
        .2 -.12 .05 .045 0 2 3; -.03 -.08 .04 .03 0 2 3
    """,
    "bottle": """
        0 -.45 .055 .05 0 4 1; 0 -.28 .05 .2 0 4; 0 0 .13 .12; 0 .22 .135 .27 0 4; 0 .24 .13 .12 0 4 1;
        .02 .22 .07 .04 0 2 3; -.08 .1 .012 .25 0 2 3
    """,
    "fruit": """
        -.24 -.06 .19 .18; .22 -.07 .2 .19 0 2 1; 0 -.15 .2 .2; .02 -.36 .012 .06 .3 4 2; .09 -.38 .08 .03 -.4 2 1;
        -.07 -.22 .045 .03 -.6 2 3; 0 .2 .46 .16 0 2 1; 0 .1 .46 .05 0 2 3; 0 .37 .18 .04 0 4 1
    """,
}


def _part(numbers: list[str]) -> Part:
    """Return a part of its numbers."""
    x, y, rx, ry, angle, power, colour = numbers + ["0", "2", "0"][len(numbers) - 4 :]
    return Part(float(x), float(y), float(rx), float(ry), float(angle), int(power), int(colour))


SUBJECTS = tuple(tuple(_part(part.split()) for part in text.split(";")) for text in NAMED.values())
