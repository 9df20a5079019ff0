"""A library that feeds training batches to accelerators.

A ``Pipeline`` describes the data: a source, an order, transforms and batches. Its ``loader()`` returns
an iterable of batches, which are dicts of arrays::

    import standpipe as sp

    train = (
        sp.Pipeline(sp.ImageFolder("photos"))
        .shuffle(seed=7)
        .map(sp.RandomResizedCrop(224), sp.RandomHorizontalFlip(), sp.Normalize())
        .batch(256)
    )
    with train.loader(memory="2GiB") as loader:
        for batch in loader:
            step(batch["image"], batch["label"])

``train.plan().explain()`` shows sizes and settings before a run. ``standpipe.torch`` and
``standpipe.jax`` deliver tensors and JAX arrays.
"""

from typing import TYPE_CHECKING

from standpipe.api import Pipeline
from standpipe.batch import Pad, Ragged
from standpipe.cache import (
    Cache,
    create_cache,
    destroy_cache,
    list_caches,
    stop_caches,
    verify_cache,
)
from standpipe.errors import (
    BudgetError,
    CacheError,
    DecodeError,
    EmptyStreamError,
    PlanError,
    ReadError,
    SampleError,
    StalledError,
    StandpipeError,
    StateError,
    TooManyBadSamples,
    TransformError,
    WorkerDiedError,
)
from standpipe.habits import unknown_name
from standpipe.jobs.fill_cache import fill_cache
from standpipe.loader.loader import Loader
from standpipe.loader.ranks import check_ranks, check_states
from standpipe.pipeline.mix import Mixture
from standpipe.plan.memory import MemoryForecast
from standpipe.plan.options import LoaderArguments, LoaderOptions
from standpipe.plan.plan import Plan
from standpipe.plan.tuning import Trial, Tuning, load_tuning
from standpipe.source import (
    Arrays,
    Concat,
    FileList,
    FixedRecords,
    IdxFiles,
    ImageFolder,
    IterableSource,
    MapSource,
    SharedList,
    TarShards,
    build_index,
    share_list,
    verify_index,
)
from standpipe.spec import ArraySpec, DecodeLimits, Raise, Reads, Replace
from standpipe.stats.bad_samples import BadSample
from standpipe.stats.counters import PlaceStats, SlotStats, SlowSample, Stats, StepStats, WorkerStats
from standpipe.stats.latency import Latency
from standpipe.stats.memory import MemoryLedger, MemoryOwner
from standpipe.system.fork_server import ForkServer
from standpipe.system.workers import worker_id
from standpipe.transform.aug_mix import AugMix
from standpipe.transform.auto_augment import AutoAugment, RandAugment, TrivialAugmentWide
from standpipe.transform.color import (
    ColorJitter,
    RandomAutocontrast,
    RandomEqualize,
    RandomGrayscale,
    RandomInvert,
    RandomPosterize,
    RandomSolarize,
)
from standpipe.transform.composition import from_timm, from_torchvision
from standpipe.transform.element import Normalize, ToDtype, ToLayout
from standpipe.transform.erasing import RandomErasing
from standpipe.transform.geometry import (
    CenterCrop,
    RandomHorizontalFlip,
    RandomResize,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
)
from standpipe.transform.groups import RandomApply, RandomChoice, RandomOrder
from standpipe.transform.mixing import CutMix, MixUp
from standpipe.transform.pixels import GaussianBlur, RandomAdjustSharpness
from standpipe.transform.schedule import Schedule
from standpipe.transform.timm_augment import ThreeAugment, TimmRandAugment
from standpipe.transform.views import Repeat, Views
from standpipe.transform.warps import RandomAffine, RandomPerspective, RandomRotation
from standpipe.transform.window import PadImage, RandomCrop

if TYPE_CHECKING:
    from standpipe.jobs.epoch_digest import digest_epoch
    from standpipe.jobs.file_check import check_files
    from standpipe.jobs.packing.pack import pack_shards
    from standpipe.jobs.packing.unpack import unpack_shards
    from standpipe.jobs.packing.verify import verify_shards
    from standpipe.jobs.read_speed import measure_reads

__all__ = [
    "ArraySpec",
    "Arrays",
    "AugMix",
    "AutoAugment",
    "BadSample",
    "BudgetError",
    "Cache",
    "CacheError",
    "CenterCrop",
    "ColorJitter",
    "Concat",
    "CutMix",
    "DecodeError",
    "DecodeLimits",
    "EmptyStreamError",
    "FileList",
    "FixedRecords",
    "ForkServer",
    "GaussianBlur",
    "IdxFiles",
    "ImageFolder",
    "IterableSource",
    "Latency",
    "Loader",
    "LoaderArguments",
    "LoaderOptions",
    "MapSource",
    "MemoryForecast",
    "MemoryLedger",
    "MemoryOwner",
    "MixUp",
    "Mixture",
    "Normalize",
    "Pad",
    "PadImage",
    "Pipeline",
    "PlaceStats",
    "Plan",
    "PlanError",
    "Ragged",
    "Raise",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomApply",
    "RandomAutocontrast",
    "RandomChoice",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomOrder",
    "RandomPerspective",
    "RandomPosterize",
    "RandomResize",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomSolarize",
    "RandomVerticalFlip",
    "ReadError",
    "Reads",
    "Repeat",
    "Replace",
    "Resize",
    "SampleError",
    "Schedule",
    "SharedList",
    "SlotStats",
    "SlowSample",
    "StalledError",
    "StandpipeError",
    "StateError",
    "Stats",
    "StepStats",
    "TarShards",
    "ThreeAugment",
    "TimmRandAugment",
    "ToDtype",
    "ToLayout",
    "TooManyBadSamples",
    "TransformError",
    "Trial",
    "TrivialAugmentWide",
    "Tuning",
    "Views",
    "WorkerDiedError",
    "WorkerStats",
    "build_index",
    "check_files",
    "check_ranks",
    "check_states",
    "create_cache",
    "destroy_cache",
    "digest_epoch",
    "fill_cache",
    "from_timm",
    "from_torchvision",
    "list_caches",
    "load_tuning",
    "measure_reads",
    "pack_shards",
    "share_list",
    "stop_caches",
    "unpack_shards",
    "verify_cache",
    "verify_index",
    "verify_shards",
    "worker_id",
]


# Functions that training doesn't call, and their modules.
_AT_FIRST_USE = {
    "check_files": "file_check",
    "digest_epoch": "epoch_digest",
    "measure_reads": "read_speed",
    "pack_shards": "packing.pack",
    "unpack_shards": "packing.unpack",
    "verify_shards": "packing.verify",
}


def __getattr__(name: str) -> object:
    """Import a function that training doesn't call, or find ``__version__``: both would make each import slower.

    Raise ``AttributeError`` for other names, with what to write instead if that is known.
    """
    if name == "__version__":
        from importlib.metadata import version

        return version("standpipe")
    if name in _AT_FIRST_USE:
        from importlib import import_module

        found = getattr(import_module(f"standpipe.jobs.{_AT_FIRST_USE[name]}"), name)
        globals()[name] = found
        return found
    raise unknown_name(name, __all__)


def __dir__() -> list[str]:
    """Return the public names, also those that aren't imported yet."""
    return [*__all__, "__version__"]
