"""Several views of each image: ``Views`` and ``Repeat``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from standpipe.errors import PlanError
from standpipe.spec import plain, set_plain
from standpipe.transform.image import ImageTransform, Size
from standpipe.transform.kinds import MOVED
from standpipe.transform.python.schedule import is_scheduled
from standpipe.units import is_count

MOST_VIEWS = 64


@dataclass(frozen=True, slots=True)
class Repeat:
    """Several views of an image by the same transforms, for ``Views``. Each view has random numbers of its own.

    Parameters
    ----------
    number : int
        Number of views, at least 1.
    transforms : list of transforms
        Native transforms of one view. They must give all images the same size.

    Examples
    --------
    >>> small = sp.Repeat(6, [sp.RandomResizedCrop(16, scale=(0.05, 0.4)), sp.RandomHorizontalFlip()])
    >>> photos = sp.Pipeline(sp.ImageFolder("photos"))
    >>> with photos.map(sp.Views(small=small)).batch(4).loader() as loader:
    ...     print(loader.peek()["small"].shape)
    (4, 6, 16, 16, 3)
    """

    number: int
    transforms: Sequence[ImageTransform]

    def __post_init__(self) -> None:
        set_plain(self)


class Views(ImageTransform):
    """Make several views of each image, which is decoded once, as SimCLR, BYOL and DINO need them.

    The batch gets a field for each view, instead of the field ``image``. A field of ``Repeat(n, …)`` has ``n`` views
    of each image, in the axis after the batch's. Each view has random numbers of its own, which depend on its name
    and not on the other views. Its pixels are those of the same transforms and numbers alone. Only
    ``decode("fast")`` differs: it decodes at the smallest reduction that suits all views.

    Further pictures are moved with each view: the masks of the view ``a`` are the field ``a_mask``, with the view's
    random numbers, instead of the field ``mask``. Those of a view named ``image`` are the field ``mask``.

    ``Views`` is the last native transform. Native transforms before it must not be random.

    Parameters
    ----------
    **views : list of transforms or Repeat
        The native transforms of each view, by the name of its field; at most 64 views together. They must give all
        images of a view the same size. An empty list is the image as it comes.

    Raises
    ------
    PlanError
        By ``plan()``, if there is no view, if a view's transforms are invalid or leave its images of different
        sizes, if a field of the source has the name of a view or of its masks, or if native transforms follow.

    Examples
    --------
    >>> crop = [sp.RandomResizedCrop(32), sp.RandomHorizontalFlip(), sp.Normalize()]
    >>> small = [sp.RandomResizedCrop(16, scale=(0.05, 0.4)), sp.Normalize()]
    >>> views = sp.Views(a=crop, b=crop, small=sp.Repeat(6, small))
    >>> with sp.Pipeline(sp.ImageFolder("photos")).map(views).batch(4).loader() as loader:
    ...     batch = loader.peek()
    >>> batch["a"].shape, batch["b"].shape, batch["small"].shape
    ((4, 3, 32, 32), (4, 3, 32, 32), (4, 6, 3, 16, 16))
    """

    __slots__ = ("views",)
    views: dict[str, Sequence[ImageTransform] | Repeat]

    if TYPE_CHECKING:

        def __init__(self, **views: Sequence[ImageTransform] | Repeat) -> None: ...

    else:

        def __init__(self, **views):
            self.views = plain(views, list)

    def __repr__(self) -> str:
        """Return the views in the form of the call that made them."""
        return f"Views({', '.join(f'{name}={given!r}' for name, given in self.views.items())})"

    def __eq__(self, other: object) -> bool:
        """Return True for ``Views`` with the same views in the same order."""
        return isinstance(other, Views) and list(self.views.items()) == list(other.views.items())

    def __hash__(self) -> int:
        """Return a hash of the views' names."""
        return hash(tuple(self.views))

    @property
    def moves(self) -> tuple[str, ...]:
        """The kinds of pictures that each transform of the views moves that moves any."""
        moving = [each.moves for each in self.transforms() if each.moves]
        return tuple(name for name in MOVED if moving and all(name in each for each in moving))

    @property
    def is_random(self) -> bool:
        """True if a view is random."""
        return any(each.is_random for each in self.transforms())

    def check(self) -> None:
        """Raise ``PlanError`` if there is no view, too many, or one that isn't a list of transforms."""
        if not self.views:
            raise PlanError(
                "Views() has no view: name at least one, such as Views(a=[RandomResizedCrop(224)])"
            )
        for name, given in self.views.items():
            if isinstance(given, Repeat) and not is_count(given.number, 1, MOST_VIEWS):
                raise PlanError(
                    f"Views({name}={given!r}): the number of views must be an integer from 1 to {MOST_VIEWS}"
                )
            if not isinstance(transforms_of(given), list | tuple):
                raise PlanError(f"Views({name}={given!r}): give it a list of transforms, or Repeat(n, [...])")
            if is_scheduled(given):
                raise PlanError(
                    f"Views({name}={given!r}): parameters of views can't change. Leave Schedule and PerStep out"
                )
        number = sum(number_of_views(given) or 1 for given in self.views.values())
        if number > MOST_VIEWS:
            raise PlanError(f"Views has {number} views; give it at most {MOST_VIEWS}")

    def size_after(self, size: Size | None) -> Size | None:
        """Return ``size``: each view has a size of its own."""
        return size

    def transforms(self) -> Iterator[ImageTransform]:
        """Yield the transforms of all views, as far as they are any: this is asked before ``check()``."""
        for given in self.views.values():
            transforms = transforms_of(given)
            if isinstance(transforms, list | tuple):
                yield from (each for each in transforms if isinstance(each, ImageTransform))


def transforms_of(given: Sequence[ImageTransform] | Repeat) -> Sequence[ImageTransform]:
    """Return the transforms of one view of a field."""
    return given.transforms if isinstance(given, Repeat) else given


def number_of_views(given: Sequence[ImageTransform] | Repeat) -> int | None:
    """Return the number of a field's views in an axis of their own; None for one view without such an axis."""
    return given.number if isinstance(given, Repeat) else None
