"""AugMix: an image mixed with augmented copies of itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from standpipe import _native
from standpipe.transform.image import Size, is_number
from standpipe.transform.pixels.auto_augment import MOST_OPS, AutoAugmentBase, Fill, magnitudes_of
from standpipe.transform.pixels.geometry import AugmentInterpolation

LEAST_ALPHA, MOST_ALPHA = 1e-3, 1e6
BINS = 10  # also the largest severity

# Largest magnitudes (Hendrycks et al., arXiv:1912.02781), as torchvision has them. Translations are a part of the
# image's side.
MIXED = {
    "ShearX": 0.3,
    "ShearY": 0.3,
    "TranslateX": 1 / 3,
    "TranslateY": 1 / 3,
    "Rotate": 30.0,
    "Posterize": 4.0,
    "Solarize": 0.0,
    "Brightness": 0.9,
    "Color": 0.9,
    "Contrast": 0.9,
    "Sharpness": 0.9,
}
MOST_BITS = 4  # that posterize leaves at its weakest, where other policies leave 8
NAMES = (
    *("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Posterize", "Solarize"),
    *("AutoContrast", "Equalize", "Brightness", "Color", "Contrast", "Sharpness"),
)
ONLY_OF_ALL = ("Brightness", "Color", "Contrast", "Sharpness")


@dataclass(frozen=True, slots=True)
class AugMix(AutoAugmentBase):
    """Mix an image with augmented copies of itself, like ``torchvision.transforms.v2.AugMix``.

    Each copy goes through a chain of random operations: shears, translations, rotation, posterize, solarize,
    autocontrast, equalize, brightness, color, contrast and sharpness, each with the same probability. Where an
    operation has a sign, it is random. The weights of the copies are random numbers of a Dirichlet distribution. So
    are those of their sum and of the image itself.

    Distributions and the arithmetic of the mixture are torchvision's. The operations have Pillow's pixels, as in
    ``RandAugment`` and in the program of AugMix's authors. torchvision applies them to tensors here, also for Pillow
    images, which differ by a level or two, and by more where a warped image ends. A pipeline with masks is refused: a
    mixture has no class numbers.

    Parameters
    ----------
    severity : int, default 3
        Number of magnitudes to choose among, from 1 to 10. The strongest ones of 10 are the last.
    mixture_width : int, default 3
        Number of copies, from 1 to 16.
    chain_depth : int, default -1
        Number of operations for each copy, up to 16. 0 and below: 1, 2 or 3 at random.
    alpha : float, default 1.0
        Parameter of both Dirichlet distributions, from 0.001 to 1,000,000. The larger it is, the closer the
        weights are to each other.
    all_ops : bool, default True
        False: without brightness, color, contrast and sharpness.
    interpolation : str, default "bilinear"
        ``"nearest"``, ``"bilinear"`` or ``"bicubic"``, for shears, translations and rotations.
    fill : int or tuple of int, optional
        Level of all channels or of each, 0 to 255, of places outside a warped image. Default: black.

    Raises
    ------
    PlanError
        By ``plan()``, for invalid parameters, if images differ in size, or if they have masks.

    Examples
    --------
    >>> train = sp.Pipeline(sp.ImageFolder("photos")).map(sp.RandomResizedCrop(32), sp.AugMix()).batch(4)
    >>> with train.loader() as loader:
    ...     print(loader.peek()["image"].shape)
    (4, 32, 32, 3)
    """

    draw_kind: ClassVar[int] = 47
    moved: ClassVar[tuple[str, ...]] = ("image",)

    severity: int = 3
    mixture_width: int = 3
    chain_depth: int = -1
    alpha: float = 1.0
    all_ops: bool = True
    interpolation: AugmentInterpolation = "bilinear"
    fill: Fill = None

    def check(self) -> None:
        """Raise ``PlanError`` for invalid parameters."""
        AutoAugmentBase.check(self)
        self.check_integer("severity", 1, BINS)
        self.check_integer("mixture_width", 1, _native.MOST_CHAINS)
        if type(self.chain_depth) is not int or self.chain_depth > MOST_OPS:
            self.refuse("chain_depth", f"an integer of at most {MOST_OPS}")
        if not is_number(self.alpha) or not LEAST_ALPHA <= self.alpha <= MOST_ALPHA:
            self.refuse("alpha", f"a number from {LEAST_ALPHA} to {MOST_ALPHA:,.0f}")
        self.check_flag("all_ops")

    def stage(self, op: int, size: Size | None) -> _native.PixelStage:
        """Return the native pass of this transform."""
        known = self.known(size)
        names = [name for name in NAMES if self.all_ops or name not in ONLY_OF_ALL]
        found = {name: numbers[: self.severity] for name, numbers in _magnitudes(known).items()}
        depth = max(self.chain_depth, 0)
        chain = [self._any(names, found, known)]
        return _native.PixelStage.mixture(op, 1.0, self.alpha, self.mixture_width, depth, chain)


def _magnitudes(size: Size) -> dict[str, list[float]]:
    """Return each operation's ten magnitudes, weakest first, for images of (height, width) ``size``."""
    found = magnitudes_of(MIXED, BINS, size)
    found["Posterize"] = [bits - 8 + MOST_BITS for bits in found["Posterize"]]
    return found
