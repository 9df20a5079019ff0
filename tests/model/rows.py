"""The batches of a pipeline, the slow and obvious way: what the loader must deliver, whatever delivers it.

``Model`` reads the description of a pipeline and the records of its source. It shares with the package the order of
a shuffle and the distribution of MixUp's λ, which golden files pin, and nothing else.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFile, ImageOps

import standpipe as sp
from draws import Sample, ops
from model.pictures import Picture, TooSmall, moved, written
from standpipe.order import BlockShuffled, Shuffled
from standpipe.spec import LastBatch
from standpipe.transform import Function
from standpipe.transform.python.mixing import beta, cut_box

FUNCTION, BATCH, SUBSTITUTE = 0x51 << 16, 0x52 << 16, 0x53 << 16  # what random numbers are for
MOST_ATTEMPTS = 100  # replacements of one row


class Bad(Exception):
    """A sample is bad. ``kind``: the name of its error's class; ``index``: its record, once that is known."""

    def __init__(self, kind: str, place: str, index: int = -1) -> None:
        super().__init__(kind, place, index)
        self.kind, self.place, self.index = kind, place, index


class Missing:
    """Stands for the image of a file that isn't there."""


class Broken:
    """Stands for a record that the data set can't give."""


@dataclass
class Model:
    """The batches of one rank.

    pipeline  with a batch size, and the rank's ``shard()``
    records   the values of every record of the source, by field; images are encoded, arrays or Pillow's
    chosen    the numbers of the records that the pipeline selects, in the source's order
    replaced  (epoch, position, attempt, record, substitute) of each bad sample that was replaced
    """

    pipeline: sp.Pipeline
    records: Sequence[Any]
    chosen: Sequence[int]
    replaced: list[tuple[int, int, int, int, int]] = field(default_factory=list)

    def batches(self, epoch: int, consumed: int) -> Iterator[dict[str, Any]]:
        """Yield the batches of the rest of an epoch, then of all later ones. Raises ``Bad`` for a bad sample."""
        while True:
            order = self.order(epoch)
            for start in self.starts(len(order), consumed):
                yield self.batch(order, epoch, start)
            rest = len(order) % (self.pipeline.batch_rows or 1)
            if (
                rest
                and self.last_batch is LastBatch.DROP
                and self.streams
                and self.pipeline.source.length is None
            ):
                self.batch(
                    order, epoch, len(order) - rest
                )  # read before the end is known: may have a bad sample
            epoch, consumed = epoch + 1, 0

    def order(self, epoch: int) -> list[int]:
        """The record at each position of an epoch."""
        pipeline, count = self.pipeline, len(self.chosen)
        places = np.arange(count)
        if pipeline.shuffled and pipeline.block is None:
            places = Shuffled(count, pipeline.seed).indices(epoch, 0, count)
        elif pipeline.shuffled:
            shuffled = BlockShuffled(count, pipeline.seed, pipeline.block, pipeline.window)
            places = shuffled.indices(epoch, 0, count)
        return [self.chosen[place] for place in places.tolist() for _ in range(pipeline.repeats)]

    @property
    def streams(self) -> bool:
        return isinstance(self.pipeline.source, sp.IterableSource)

    @property
    def last_batch(self) -> LastBatch:
        given, several = self.pipeline.last_batch, self.pipeline.world_size > 1
        if self.streams:
            return given or (LastBatch.DROP if several else LastBatch.PARTIAL)
        return given or (LastBatch.DROP if self.pipeline.shuffled else LastBatch.PAD)

    def starts(self, count: int, consumed: int) -> list[int]:
        """The first position of this rank's part of each step that is left."""
        rows, world = self.pipeline.batch_rows or 0, self.pipeline.world_size
        steps = range(consumed, count, rows * world)
        if self.last_batch is LastBatch.DROP:
            steps = range(consumed, count - rows * world + 1, rows * world)
        return [start + self.pipeline.rank * rows for start in steps]

    def batch(self, order: Sequence[int], epoch: int, start: int) -> dict[str, Any]:
        """The batch whose first row has the position ``start``."""
        rows = self.pipeline.batch_rows or 0
        if self.last_batch is not LastBatch.PAD:
            rows = min(rows, len(order) - start)
        samples, numbers, positions = [], [], [(start + row) % len(order) for row in range(rows)]
        for row, position in enumerate(positions):
            record = self.streamed(start, row) if self.streams else order[position]
            values, number = self.good_sample(order, Sample(self.pipeline.seed, epoch, position), record)
            samples.append(values)
            numbers.append(number)
        batch = self.collated(samples)
        batch["index"] = np.array(numbers)
        if self.last_batch is LastBatch.PAD:
            batch["valid"] = np.array([start + row < len(order) for row in range(rows)])
        for place, function in enumerate(self.pipeline.batch_functions):
            key = Sample(self.pipeline.seed, epoch, positions[0]).draws(BATCH + place).state
            batch |= mixed(function.fn, batch, np.random.Generator(np.random.Philox(key=key)))
        return batch

    def streamed(self, start: int, row: int) -> int:
        """A sample's number in this rank's stream."""
        pipeline = self.pipeline
        return (start - pipeline.rank * (pipeline.batch_rows or 0)) // pipeline.world_size + row

    def good_sample(self, order: Sequence[int], sample: Sample, record: int) -> tuple[dict[str, Any], int]:
        """The values of the record at a position, or of the first good one that replaces it; and its number."""
        while True:
            at = record * self.pipeline.world_size + self.pipeline.rank if self.streams else record
            try:
                return self.values(self.records[at], sample), record
            except Bad as bad:
                if not isinstance(self.pipeline.bad, sp.Replace) or sample.attempt == MOST_ATTEMPTS:
                    raise Bad(bad.kind, bad.place, record) from None
            following = replace(sample, attempt=sample.attempt + 1)
            other = order[following.draws(SUBSTITUTE).state * len(order) >> 64]
            self.replaced.append((sample.epoch, sample.position, sample.attempt, record, other))
            sample, record = following, other

    def values(self, record: Any, sample: Sample) -> dict[str, Any]:
        """The values of one sample after all transforms. Raises ``Bad``."""
        if isinstance(record, Broken):
            raise Bad("SampleError", "source")
        values, transforms = dict(record), self.pipeline.transforms
        if transforms or not isinstance(values.get("image"), np.ndarray):
            values["image"] = self.decoded(values["image"])
        numbers, calls, first = ops(transforms), 0, 0
        for place, transform in enumerate([*transforms, None]):
            if transform is not None and not isinstance(transform, Function):
                continue
            self.natively(values, transforms[first:place], sample, numbers[first:place])
            first = place + 1
            if isinstance(transform, Function):
                values = called(transform, values, sample.draws(FUNCTION + calls).state)
                calls += 1
        if any(value is None for name, value in values.items() if name != "text"):
            raise Bad("TransformError", "batch")
        return values

    def natively(
        self, values: dict[str, Any], transforms: Sequence[Any], sample: Sample, numbers: Sequence[int]
    ) -> None:
        """Change ``values`` by transforms that are standpipe's own."""
        if not transforms:
            return
        views = transforms[-1] if isinstance(transforms[-1], sp.Views) else None
        shared = transforms[:-1] if views else transforms
        try:
            picture = moved(
                shared, Picture(values["image"], values.get("mask")), sample, numbers[: len(shared)]
            )
            if views is None:
                values["image"] = written(shared, picture.image, sample, numbers)
            else:
                del values["image"]
                made = {name: viewed(picture, given, sample, name) for name, given in views.views.items()}
                values.update(made)
        except TooSmall:
            raise Bad("DecodeError", "transform") from None
        if picture.mask is not None:
            values["mask"] = picture.mask

    def decoded(self, image: Any) -> Any:
        """The pixels of an image, (H, W, 3) uint8."""
        if image is Missing:
            raise Bad("ReadError", "read")
        if isinstance(image, np.ndarray):
            return image
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", self.pipeline.decoding.allow_truncated)
            try:
                picture = Image.open(io.BytesIO(image)) if isinstance(image, bytes) else image
                if self.pipeline.decoding.upright:
                    picture = ImageOps.exif_transpose(picture)
                return np.asarray(picture.convert("RGB"))
            except Exception:
                raise Bad("DecodeError", "transform") from None

    def collated(self, samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = {}
        for name in samples[0]:
            values = [sample[name] for sample in samples]
            match self.pipeline.collate.get(name):
                case sp.Pad() as pad:
                    longest = max(map(len, values))
                    length = -(-longest // pad.to_multiple_of) * pad.to_multiple_of
                    if isinstance(pad.length, tuple):
                        (length,) = pad.length
                    batch[name] = np.full((len(values), length), pad.value, values[0].dtype)
                    for row, value in enumerate(values):
                        batch[name][row, : len(value)] = value
                    batch[f"{name}_length"] = np.array([len(value) for value in values])
                case sp.Ragged():
                    batch[name] = np.concatenate(values)
                    batch[f"{name}_offsets"] = np.cumsum([0, *map(len, values)])
                case None if name != "text":
                    batch[name] = np.stack([np.asarray(value) for value in values])
                case _:
                    batch[name] = values
        return batch


def viewed(picture: Picture, given: Any, sample: Sample, name: str) -> Any:
    """One view of an image, or several in an axis of their own."""

    def view(transforms: Sequence[Any], number: int) -> Any:
        key, numbers = sample.view(name, number), ops(transforms)
        return written(transforms, moved(transforms, picture, key, numbers).image, key, numbers)

    if isinstance(given, sp.Repeat):
        return np.stack([view(given.transforms, number) for number in range(given.number)])
    return view(given, 0)


def called(function: Function, values: dict[str, Any], key: int) -> dict[str, Any]:
    """The values after a function of the user's."""
    more = {"rng": np.random.Generator(np.random.Philox(key=key))} if function.takes_rng else {}
    try:
        made = function.fn(values if function.field is None else values[function.field], **more)
    except Exception:
        made = None
    if made is None:
        raise Bad("TransformError", "transform")
    return dict(made) if function.field is None else {**values, function.field: made}


def mixed(mixing: Any, batch: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Images and labels of a batch, each mixed with the row before it."""
    images, labels = batch["image"], batch["label"]
    if labels.ndim == 1:
        labels = np.eye(mixing.num_classes, dtype=np.float32)[labels]
    share, others = beta(mixing.alpha, rng), np.roll(images, 1, axis=0)
    if isinstance(mixing, sp.CutMix):
        planar = images.dtype != np.uint8 if images.shape[1] == images.shape[3] == 3 else images.shape[1] == 3
        height, width = images.shape[2:] if planar else images.shape[1:3]
        top, left, bottom, right = cut_box(height, width, share, rng)
        box: Any = (slice(None),) * (2 if planar else 1) + (slice(top, bottom), slice(left, right))
        images = images.copy()
        images[box] = others[box]
        share = 1 - (bottom - top) * (right - left) / (height * width)
    elif images.dtype == np.uint8:
        own = round(share * 65536)
        images = (images * np.uint32(own) + others * np.uint32(65536 - own) + 32768 >> 16).astype(np.uint8)
    else:
        blend = others.astype(np.float32) * np.float32(1 - share)
        images = (blend + images.astype(np.float32) * np.float32(share)).astype(images.dtype)
    blend = np.roll(labels, 1, axis=0) * np.float32(1 - share)
    return {"image": images, "label": blend + labels * np.float32(share)}
