"""Draw the diagrams of docs/index.md and docs/understand:  python docs/pictures/places.py"""

from __future__ import annotations

from _svg import AMBER, BLUE, GREEN, LINE, RED, arrow, box, bracket, save, text

PLACES = {
    "source": ("which records", "there are"),
    "order": ("which record is", "at position n"),
    "read": ("bytes from disk,", "ahead of need"),
    "transform": ("decode, crop,", "resize, flip"),
    "batch": ("rows in a slot of", "fixed memory"),
    "device": ("host or GPU", "arrays, tensors"),
}


def row(
    y: float, boxes: dict[str, tuple[str, ...]], colours: tuple[str, ...] = (), width: float = 126
) -> list[str]:
    """Return boxes from left to right, with arrows between them."""
    parts, gap, height = [], 19, 84
    for number, (name, lines) in enumerate(boxes.items()):
        x = 24 + number * (width + gap)
        parts.append(box(x, y, width, height, name, lines, colours[number] if colours else BLUE))
        if number:
            parts.append(arrow(x - gap + 2, y + height / 2, x - 1, y + height / 2))
    return parts


def places() -> None:
    """Draw two rows of three, so that the words can be read on a phone."""
    across, down, width, height = 166, 128, 148, 92
    parts = [
        text(250, 24, "A sample passes six places, in native threads;", size=15),
        text(250, 44, "your own Python code runs in workers", size=15),
    ]
    for number, (name, lines) in enumerate(PLACES.items()):
        x, y = 10 + number % 3 * across, 62 + number // 3 * down
        parts.append(box(x, y, width, height, name, lines, size=15))
        if number % 3:
            parts.append(arrow(x - across + width + 2, y + height / 2, x - 1, y + height / 2))
    x, turn = 10 + 2 * across + width / 2, 62 + height + 18  # from the end of a row to the next
    path = f'<path d="M{x:g} {62 + height}V{turn}H84" fill="none" stroke="{LINE}" stroke-width="2"/>'
    parts += [path, arrow(84, turn, 84, 62 + down - 1), bracket(10, 62 + down + height + 6, 490)]
    for number, line in enumerate(
        ("one budget, memory=, and one recipe: the same batch", "with any workers, ranks and machines")
    ):
        parts.append(text(250, 316 + 20 * number, line, size=15))
    save("places", 500, 350, *parts)


def memory() -> None:
    parts = [text(310, 24, "memory= bounds these"), text(795, 24, "outside of it")]
    parts += [
        box(
            24,
            40,
            160,
            120,
            "slots",
            ("one lent to your code,", "one being filled,", "more while you hold more"),
        ),
        box(196, 40, 110, 120, "workers", ("stacks, buffers,", "whole processes")),
        box(318, 40, 110, 120, "read-ahead", ("encoded files", "that wait")),
        box(440, 40, 110, 120, "side arena", ("whole frames of", "progressive JPEGs,", "PNGs, …")),
        box(562, 40, 110, 120, "the rest", ("index, engine,", "queues")),
        box(712, 40, 164, 120, "your process", ("Python, NumPy, PyTorch,", "your model"), LINE),
        bracket(24, 166, 672),
        text(
            348,
            196,
            "forecast before the first file is read; the ledger loader.memory() shows each of them now",
        ),
    ]
    save("memory", 900, 210, *parts)


def order() -> None:
    parts = [text(450, 24, "seed, epoch and position give the record; nothing is stored")]
    records = (7, 2, 9, 0, 5, 3, 8, 1, 6, 4, 11, 10)
    for position, record in enumerate(records):
        x, rank = 24 + position * 71.5, position // 2 % 2
        parts.append(box(x, 64, 62, 56, f"record {record}"[7:], (), GREEN if rank else BLUE))
        parts.append(text(x + 31, 54, f"position {position}", size=11))
    for step in range(3):
        begin = 24 + step * 4 * 71.5
        parts += [bracket(begin, 126, begin + 276), text(begin + 138, 152, f"step {step}: both ranks")]
    parts.append(
        text(
            450,
            184,
            "blue: the batch of rank 0, green: of rank 1. A state is “epoch 0, 8 samples delivered”:",
        )
    )
    parts.append(text(450, 204, "any number of ranks and workers continues with position 8"))
    save("order", 900, 218, *parts)


def pixels() -> None:
    steps = {
        "JPEG bytes": ("header first:", "size, colours"),
        "decode": ("only the rows and", "columns of the crop"),
        "resample": ("row by row,", "Pillow's arithmetic"),
        "flip": ("on the way", "to the batch"),
        "normalise": ("to float32 or", "float16, NCHW"),
        "slot": ("the row's place", "in the batch"),
    }
    save(
        "pixels",
        900,
        190,
        text(450, 24, "One pass, in a few rows of memory; random numbers depend on (seed, epoch, position)"),
        *row(40, steps),
        bracket(24, 144, 586),
        text(305, 174, "the pixels of Pillow 13, bit for bit"),
    )


def decoding() -> None:
    """Draw a photo of MCUs with a crop, coloured by what a decoder does with them."""
    across, down, side, left, top = 24, 10, 18, 24, 44
    first_row, last_row, first_column, last_column = 3, 7, 9, 18
    parts = [text(left + across * side / 2, 28, "a photo of 24 × 10 MCUs, and a crop")]
    for row_number in range(down):
        for column in range(across):
            in_rows = first_row <= row_number <= last_row
            is_wanted = in_rows and first_column <= column <= last_column
            colour = GREEN if is_wanted else AMBER if row_number <= last_row else LINE
            parts.append(
                f'<rect x="{left + column * side}" y="{top + row_number * side}" width="{side - 2}" '
                f'height="{side - 2}" fill="{colour}" opacity="{0.75 if is_wanted else 0.35}"/>'
            )
    x, y = left + (first_column + 0.4) * side, top + (first_row + 0.3) * side
    parts.append(
        f'<rect x="{x:g}" y="{y:g}" width="{9.1 * side:g}" height="{4.3 * side:g}" fill="none" stroke="{BLUE}" '
        'stroke-width="2.5"/>'
    )
    rows = [
        (GREEN, "decoded", ("codes are stored,", "libjpeg-turbo makes pixels")),
        (AMBER, "passed over", ("codes are read, two at a time,", "and nothing is stored")),
        (LINE, "not read", ("below the crop's last row",)),
    ]
    for number, (colour, title, lines) in enumerate(rows):
        parts.append(box(490, 44 + number * 62, 386, 54, title, (" ".join(lines),), colour))
    save("decoding", 900, 244, *parts)


def caches() -> None:
    steps = {
        "source": ("photos on a", "slow disk"),
        "cache here": ("the files' bytes:", "for training"),
        "random crop": ("new in", "every epoch"),
        "batch": ("",),
    }
    evaluation = {
        "source": ("photos",),
        "resize, crop": ("always", "the same"),
        "cache here": ("finished rows:", "for evaluation"),
        "batch": ("normalised", "as it is read"),
    }
    parts = [text(300, 24, "training"), *row(40, steps, (BLUE, AMBER, BLUE, BLUE))]
    parts += [text(300, 152, "evaluation"), *row(164, evaluation, (BLUE, BLUE, AMBER, BLUE))]
    parts.append(
        box(
            632,
            40,
            244,
            208,
            "rules",
            (
                "a cache stores everything before it",
                "after a random transform: refused",
                "a changed file, parameter or",
                "function: another row",
                "full: rows are made again,",
                "none is evicted from a set in use",
            ),
            LINE,
        )
    )
    save("caches", 900, 262, *parts)


def faults() -> None:
    rows = (
        (
            "a damaged sample",
            RED,
            "SampleError with its path",
            "or another sample, with on_error(Replace(…))",
        ),
        ("a read that fails", AMBER, "tried again, 3 times", "then it counts as a damaged sample"),
        (
            "work that hangs",
            AMBER,
            "named in the log after 5 s",
            "given up after 120 s: StalledError, or replaced",
        ),
        ("a worker that dies", AMBER, "a new worker takes its place", "the batch is the same, byte for byte"),
        ("the program ends", GREEN, "all ends with it", "no process, file or memory is left"),
    )
    parts = []
    for number, (what, colour, first, then) in enumerate(rows):
        y = 16 + number * 56
        parts += [
            box(24, y, 190, 44, what, (), colour),
            arrow(216, y + 22, 254, y + 22),
            box(256, y, 250, 44, first, (), LINE),
            arrow(508, y + 22, 546, y + 22),
            box(548, y, 328, 44, then, (), LINE),
        ]
    save("faults", 900, 306, *parts)


def tuning() -> None:
    parts = [
        text(
            450,
            24,
            "A loader tries one number of workers at a time, and keeps what makes the training loop faster",
        )
    ]
    bars = (
        (60, "4 workers", BLUE),
        (78, "try 5", AMBER),
        (92, "try 6", AMBER),
        (90, "try 7", RED),
        (92, "6 workers", BLUE),
        (92, "settled", GREEN),
    )
    for number, (height, name, colour) in enumerate(bars):
        x = 40 + number * 120
        parts.append(box(x, 160 - height, 100, height, "", (), colour))
        parts.append(text(x + 50, 180, name))
    parts.append(
        text(450, 204, "rows per second, over the first seconds of a run: amber is kept, red is taken back")
    )
    save("tuning", 900, 218, *parts)


def security() -> None:
    parts = [
        box(
            24,
            40,
            260,
            130,
            "not trusted",
            (
                "image files, lists, index files,",
                "arrays, states, caches:",
                "parsed with limits, fuzzed,",
                "checked by checksums",
            ),
            RED,
        ),
        box(
            320,
            40,
            260,
            130,
            "trusted",
            ("your code, your checkpoint,", "your user's processes,", "packages that you installed"),
            GREEN,
        ),
        box(
            616,
            40,
            260,
            130,
            "never done",
            ("no network access", "no code from data files", "no pickle from shared folders"),
            BLUE,
        ),
        text(450, 24, "What standpipe reads, and what it believes"),
    ]
    save("security", 900, 190, *parts)


def ray() -> None:
    parts = [text(130, 24, "the trainer"), text(700, 24, "the Ray cluster")]
    parts += [
        box(
            24,
            40,
            212,
            84,
            "order, state, error policy",
            ("a step of the epoch is a task:", "record numbers, epoch"),
        ),
        box(24, 216, 212, 84, "slots", ("copied once, normalised", "by native threads"), GREEN),
        box(24, 332, 212, 52, "training loop", (), LINE),
        arrow(130, 302, 130, 330),
        box(318, 216, 160, 84, "object store", ("at most prefetch", "batches, as bytes"), AMBER),
        arrow(316, 258, 238, 258),
        arrow(238, 82, 556, 82),
        text(398, 72, "tasks: some bytes for each row", size=12),
        text(277, 248, "uint8", size=12),
    ]
    for number, (y, lines, colour) in enumerate(
        (
            (40, ("decodes and augments", "with native threads"), BLUE),
            (128, ("late: another one", "makes its batch too"), AMBER),
            (216, ("killed: its batches are", "asked for again"), RED),
            (304, ("comes back, or joins", "during the epoch"), BLUE),
        )
    ):
        parts.append(box(560, y, 212, 76, f"actor {number}", lines, colour))
    parts += [arrow(558, 258, 480, 258), bracket(24, 392, 772)]
    parts.append(
        text(
            398,
            422,
            "a batch depends on recipe, seed, epoch and step only: any actor, or the trainer, makes the same",
        )
    )
    save("ray", 800, 436, *parts)


if __name__ == "__main__":
    for draw in (places, memory, order, pixels, decoding, caches, faults, tuning, security, ray):
        draw()
