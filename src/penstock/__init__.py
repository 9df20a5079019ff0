"""penstock feeds training batches to accelerators.

::

    import penstock as ps

    train = (
        ps.Pipeline(ps.ImageFolder("photos"))
        .shuffle(seed=7)
        .map(ps.RandomResizedCrop(224), ps.RandomHorizontalFlip(), ps.Normalize())
        .batch(256)
    )
    with train.loader(memory="2GiB") as loader:
        for batch in loader:
            step(batch["image"], batch["label"])
"""

from penstock.audit import Audit
from penstock.bad import BadSample
from penstock.batch import Pad, Ragged
from penstock.cache import (
    Cache,
    CachedSet,
    CacheSession,
    CheckedCache,
    CheckedSet,
    FreedCache,
    create_cache,
    destroy_cache,
    list_caches,
    stop_caches,
    verify_cache,
)
from penstock.check import CheckedFiles, FileFinding, LabelFinding, check_files
from penstock.counters import Latency, PlaceStats, SlotStats, SlowSample, Stats, StepStats, WorkerStats
from penstock.engine import ReadFigures, measure_reads
from penstock.errors import (
    BudgetError,
    CacheError,
    DecodeError,
    PenstockError,
    PlanError,
    ReadError,
    SampleError,
    StalledError,
    StateError,
    TooManyBadSamples,
    TransformError,
    WorkerDied,
)
from penstock.loader import Loader
from penstock.memory import MemoryLedger, MemoryOwner
from penstock.mixture import Mix
from penstock.pipeline import Pipeline
from penstock.plan import Plan
from penstock.ranks import check_ranks, check_states
from penstock.sizing import MemoryForecast
from penstock.source import (
    Arrays,
    BuiltIndex,
    CheckedIndex,
    Concat,
    FileList,
    ImageFolder,
    Indexed,
    Iterable,
    PackedList,
    build_index,
    pack_list,
    verify_index,
)
from penstock.spec import DecodeLimits, Raise, Reads, Replace, Spec
from penstock.transform import (
    CenterCrop,
    CutMix,
    MixUp,
    Normalize,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    ToDtype,
    ToLayout,
)
from penstock.tuning import Trial, Tuning, load_tuning
from penstock.warm import Warmed
from penstock.worker import ForkServer, worker_number

__all__ = [
    "Arrays",
    "Audit",
    "BadSample",
    "BudgetError",
    "BuiltIndex",
    "Cache",
    "CacheError",
    "CacheSession",
    "CachedSet",
    "CenterCrop",
    "CheckedCache",
    "CheckedFiles",
    "CheckedIndex",
    "CheckedSet",
    "Concat",
    "CutMix",
    "DecodeError",
    "DecodeLimits",
    "FileFinding",
    "FileList",
    "ForkServer",
    "FreedCache",
    "ImageFolder",
    "Indexed",
    "Iterable",
    "LabelFinding",
    "Latency",
    "Loader",
    "MemoryForecast",
    "MemoryLedger",
    "MemoryOwner",
    "Mix",
    "MixUp",
    "Normalize",
    "PackedList",
    "Pad",
    "PenstockError",
    "Pipeline",
    "PlaceStats",
    "Plan",
    "PlanError",
    "Ragged",
    "Raise",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "ReadError",
    "ReadFigures",
    "Reads",
    "Replace",
    "Resize",
    "SampleError",
    "SlotStats",
    "SlowSample",
    "Spec",
    "StalledError",
    "StateError",
    "Stats",
    "StepStats",
    "ToDtype",
    "ToLayout",
    "TooManyBadSamples",
    "TransformError",
    "Trial",
    "Tuning",
    "Warmed",
    "WorkerDied",
    "WorkerStats",
    "build_index",
    "check_files",
    "check_ranks",
    "check_states",
    "create_cache",
    "destroy_cache",
    "list_caches",
    "load_tuning",
    "measure_reads",
    "pack_list",
    "stop_caches",
    "verify_cache",
    "verify_index",
    "worker_number",
]


def __getattr__(name: str) -> str:
    """``penstock.__version__``, looked up when it is asked for: importlib.metadata costs 20 ms."""
    if name == "__version__":
        from importlib.metadata import version

        return version("penstock")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
