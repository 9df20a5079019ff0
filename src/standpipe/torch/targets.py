"""Batches with instances in the forms that detectors take: torchvision's, DETR's, and the YOLO family's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

import torch

from standpipe import PlanError, padding_mask, ratio_pad
from standpipe.spec import MASKS, VALID

TargetForm = Literal["torchvision", "detr", "yolo"]
CHANNELS = (1, 3, 4)


@dataclass(frozen=True, slots=True)
class Targets:
    """A form of batches for detectors.

    form       the detector's family
    instances  the fields that have a value for each instance
    mask_ratio  the sides of an image ÷ those of its masks; None: instances have no masks
    """

    form: TargetForm
    instances: tuple[str, ...]
    mask_ratio: int | None = None

    @classmethod
    def of(cls, form: object, fields: Any, classes: Sequence[str] | None) -> Targets:
        """Return a form for the batches of a plan. Raises ``PlanError`` if the plan doesn't suit it.

        fields   the plan's ``batch.instances``; None without any
        classes  class names by label, ``""`` for a number that no class has; None if they aren't known
        """
        check_targets(form)
        if fields is None or not {"boxes", "labels"} <= {*fields.columns}:
            raise PlanError(f"targets={form!r} needs a source with boxes and labels, such as sp.Coco")
        if fields.length is not None:
            raise PlanError(
                f"targets={form!r} needs instances one after another: leave batch(instances=sp.Pad(…)) out"
            )
        if "" not in fields.prefixes.values():
            raise PlanError(f"targets={form!r} needs one image of each record: leave Views out")
        named = () if classes is None else tuple(classes)
        if form == "torchvision" and named[:1] not in ((), ("",)):
            raise PlanError(
                f"targets='torchvision': label 0 is the class {named[0]!r} here, and the background for torchvision's "
                "detectors. Give the source labels='category_id' or labels='contiguous+1'"
            )
        if form == "yolo" and "" in named:
            raise PlanError(
                f"targets='yolo': no class has the label {named.index('')}, and the YOLO family counts classes from 0 "
                "without gaps. Give the source labels='contiguous'"
            )
        ratio = None
        if fields.masks is not None:
            ratio, needed = fields.masks.form.mask_ratio, "index" if form == "yolo" else "dense"
            if fields.masks.form.masks != needed:
                raise PlanError(f"targets={form!r} takes masks of another form: give batch(masks={needed!r})")
        return cls(form, tuple(fields.columns), ratio)  # type: ignore[arg-type]  # checked above

    def batch(self, fields: Mapping[str, Any]) -> Any:
        """Return a batch in this form, from its tensors by field. Raises ``PlanError`` for images in another form."""
        images = fields["image"]
        if images[0].shape[0] not in CHANNELS:
            raise PlanError(
                f"targets= needs images of (C, H, W), and these are {tuple(images[0].shape)}: end the transforms by "
                "sp.Normalize(), sp.ToDtype('float32', scale=True) or sp.ToLayout('NCHW')"
            )
        if isinstance(images, list) and self.form != "torchvision":
            raise PlanError(
                f"targets={self.form!r} needs images in one tensor: use collate={{'image': sp.Pad(…)}} in place of list"
            )
        made = _FORMS[self.form](fields, self.instances)
        if self.mask_ratio is None:
            return made
        if self.form == "yolo":
            return made | {"masks": fields[MASKS], "sem_masks": _classes_of_pixels(fields)}
        for target, masks in zip(made[-1], _masks(fields, self.mask_ratio), strict=True):
            target["masks"] = masks
        return made


def check_targets(form: object) -> None:
    """Raise ``PlanError`` if there is no such form."""
    if form not in get_args(TargetForm):
        raise PlanError(f"targets must be 'torchvision', 'detr' or 'yolo', got {form!r}")


def _torchvision(fields: Mapping[str, Any], instances: Sequence[str]) -> Any:
    """Return a list of images (C, H, W) and a list of dicts, as torchvision's detectors take them."""
    images, sizes = fields["image"], _sizes(fields)
    if not isinstance(images, list):
        images = [image[:, :height, :width] for image, (height, width) in zip(images, sizes, strict=True)]
    return images, _dicts(fields, instances, fields["boxes"])


def _detr(fields: Mapping[str, Any], instances: Sequence[str]) -> Any:
    """Return images (rows, C, H, W), a mask (rows, H, W) that is True for padding, and a list of dicts.

    Boxes are centre, width and height, as fractions of the image without its padding.
    """
    images, boxes = fields["image"], fields["boxes"]
    device = images.device
    sizes = torch.tensor(_sizes(fields), device=device)
    sides = sizes.flip(1).to(boxes.dtype)[fields["batch_index"]].repeat(1, 2)
    # By NumPy: torch's threads would spin a while after each operation, beside the loader's.
    mask = torch.from_numpy(padding_mask(fields)).to(device)
    return images, mask, _dicts(fields, instances, _centred(boxes) / sides, size=sizes)


def _yolo(fields: Mapping[str, Any], _instances: Sequence[str]) -> Any:
    """Return a flat dict, as models of the YOLO family take it.

    ``img``; float32 ``cls`` (total, 1), ``bboxes`` (total, 4) as fractions of the tensor's sides, and ``batch_idx``
    (total,); ``keypoints`` (total, K, 3), if there are some; ``masks`` (rows, H, W), the numbers of each row's
    instances from 1, and ``sem_masks``, their classes; and for each image ``ori_shape``,
    ``resized_shape``, and ``ratio_pad``: by how much heights and widths were multiplied, and how many columns and rows
    lie before it.
    """
    images, boxes = fields["image"], fields["boxes"]
    height, width = images.shape[-2:]
    sides = boxes.new_tensor([width, height])
    ratios, before = ratio_pad(fields)
    made = {
        "img": images,
        "cls": fields["labels"][:, None].to(boxes.dtype),
        "bboxes": _centred(boxes) / sides.repeat(2),
        "batch_idx": fields["batch_index"].to(boxes.dtype),
        "ori_shape": [tuple(size) for size in fields["orig_size"].tolist()],
        "resized_shape": [(height, width)] * len(images),
        "ratio_pad": list(zip(map(tuple, ratios.tolist()), map(tuple, before.tolist()), strict=True)),
    }
    if "keypoints" in fields:
        made["keypoints"] = fields["keypoints"] / torch.cat([sides, sides.new_ones(1)])
    others = ("image_id", "index", "valid", "orig_size", "to_original")
    return made | {name: fields[name] for name in others if name in fields}


_FORMS: dict[str, Callable[..., Any]] = {"torchvision": _torchvision, "detr": _detr, "yolo": _yolo}


def _sizes(fields: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Return the height and width of each image, without padding."""
    if "image_length" in fields:
        return [(height, width) for _, height, width in fields["image_length"].tolist()]
    return [tuple(image.shape[-2:]) for image in fields["image"]]


def _masks(fields: Mapping[str, Any], ratio: int) -> Sequence[torch.Tensor]:
    """Return the masks of each image, (M, H, W), without padding. ``ratio``: an image's sides ÷ those of masks."""
    masks: Any = fields[MASKS]
    if not isinstance(masks, list):
        masks = masks.split([stop - begin for begin, stop in pairwise(fields["instance_offsets"].tolist())])
    sizes = [(height // ratio, width // ratio) for height, width in _sizes(fields)]
    return [part[:, :height, :width] for part, (height, width) in zip(masks, sizes, strict=True)]


def _classes_of_pixels(fields: Mapping[str, Any]) -> torch.Tensor:
    """Return the class of each pixel of an index map, (rows, H, W) float32; 0 where no instance is."""
    numbers, labels = fields[MASKS].long(), fields["labels"]
    classes = torch.cat([labels.new_zeros(1), labels])
    places = (numbers + fields["instance_offsets"][:-1, None, None]) * (numbers > 0)
    return classes[places].to(torch.float32)


def _dicts(
    fields: Mapping[str, Any], instances: Sequence[str], boxes: torch.Tensor, **values: torch.Tensor
) -> list[dict[str, Any]]:
    """Return a dict for each image with its instances, and its values of one per image.

    boxes   those that are given in place of the batch's
    values  further values of one per image
    """
    offsets = fields["instance_offsets"].tolist()
    counts = [stop - begin for begin, stop in pairwise(offsets)]
    columns = {name: (boxes if name == "boxes" else fields[name]).split(counts) for name in instances}
    rows: dict[str, Any] = {"orig_size": fields["orig_size"], "to_original": fields["to_original"], **values}
    if VALID in fields:
        rows[VALID] = fields[VALID]
    if "image_id" in fields:
        rows["image_id"] = fields["image_id"].tolist()  # torchvision's evaluation takes a number
    names = [*columns, *rows]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), *rows.values(), strict=True)]


def _centred(boxes: torch.Tensor) -> torch.Tensor:
    """Return boxes as centre, width and height, from xyxy."""
    begin, end = boxes[:, :2], boxes[:, 2:]
    return torch.cat([(begin + end) / 2, end - begin], 1)
