"""The public names and their modules, which ``__init__.py`` imports when a name is first asked for."""

from standpipe import recipes as recipes
from standpipe.api import Pipeline as Pipeline
from standpipe.batch.collate import (
    Pad as Pad,
    Ragged as Ragged,
)
from standpipe.batch.original import (
    boxes_to_original as boxes_to_original,
    padding_mask as padding_mask,
    ratio_pad as ratio_pad,
)
from standpipe.cache.description import Cache as Cache
from standpipe.cache.sessions import (
    create_cache as create_cache,
    destroy_all_caches as destroy_all_caches,
    destroy_cache as destroy_cache,
    list_caches as list_caches,
)
from standpipe.cache.verifying import verify_cache as verify_cache
from standpipe.engine.processes.fork_server import ForkServer as ForkServer
from standpipe.errors import (
    BudgetError as BudgetError,
    CacheError as CacheError,
    DecodeError as DecodeError,
    EmptyStreamError as EmptyStreamError,
    PlanError as PlanError,
    ReadError as ReadError,
    SampleError as SampleError,
    StalledError as StalledError,
    StandpipeError as StandpipeError,
    StateError as StateError,
    TooManyBadSamples as TooManyBadSamples,
    TransformError as TransformError,
    WorkerDiedError as WorkerDiedError,
)
from standpipe.jobs.epoch_digest import digest_epoch as digest_epoch
from standpipe.jobs.file_check import check_files as check_files
from standpipe.jobs.fill_cache import fill_cache as fill_cache
from standpipe.jobs.packing.pack import pack_shards as pack_shards
from standpipe.jobs.packing.unpack import unpack_shards as unpack_shards
from standpipe.jobs.packing.verify import verify_shards as verify_shards
from standpipe.jobs.read_speed import measure_reads as measure_reads
from standpipe.jobs.record_check import verify_records as verify_records
from standpipe.loader.loader import Loader as Loader
from standpipe.loader.ranks import (
    check_ranks as check_ranks,
    check_states as check_states,
)
from standpipe.pipeline.mix import Mixture as Mixture
from standpipe.plan.memory import MemoryForecast as MemoryForecast
from standpipe.plan.options import (
    LoaderArguments as LoaderArguments,
    LoaderOptions as LoaderOptions,
)
from standpipe.plan.plan import Plan as Plan
from standpipe.plan.tuning import (
    Trial as Trial,
    Tuning as Tuning,
    load_tuning as load_tuning,
)
from standpipe.source import (
    MDS as MDS,
    Arrays as Arrays,
    Arrow as Arrow,
    Coco as Coco,
    Concat as Concat,
    FileList as FileList,
    FixedRecords as FixedRecords,
    HuggingFace as HuggingFace,
    IdxFiles as IdxFiles,
    ImageFolder as ImageFolder,
    IterableSource as IterableSource,
    MapSource as MapSource,
    PascalVoc as PascalVoc,
    TarShards as TarShards,
    TFRecords as TFRecords,
    YoloLabels as YoloLabels,
    build_index as build_index,
    verify_index as verify_index,
)
from standpipe.spec import (
    ArraySpec as ArraySpec,
    DecodeLimits as DecodeLimits,
    Raise as Raise,
    ReadOptions as ReadOptions,
    Replace as Replace,
    Store as Store,
)
from standpipe.stats.bad_samples import BadSample as BadSample
from standpipe.stats.counters import (
    FetchStats as FetchStats,
    PlaceStats as PlaceStats,
    SlotStats as SlotStats,
    SlowSample as SlowSample,
    Stats as Stats,
    StepStats as StepStats,
    WorkerStats as WorkerStats,
)
from standpipe.stats.latency import Latency as Latency
from standpipe.stats.memory import (
    MemoryLedger as MemoryLedger,
    MemoryOwner as MemoryOwner,
)
from standpipe.system.packed import (
    SharedList as SharedList,
    share_list as share_list,
)
from standpipe.system.workers import worker_id as worker_id
from standpipe.transform.converted.composition import (
    from_timm as from_timm,
    from_torchvision as from_torchvision,
)
from standpipe.transform.kernels.views import (
    Repeat as Repeat,
    Views as Views,
)
from standpipe.transform.pixels.aug_mix import AugMix as AugMix
from standpipe.transform.pixels.auto_augment import (
    AutoAugment as AutoAugment,
    RandAugment as RandAugment,
    TrivialAugmentWide as TrivialAugmentWide,
)
from standpipe.transform.pixels.color import (
    ColorJitter as ColorJitter,
    Grayscale as Grayscale,
    RandomAutocontrast as RandomAutocontrast,
    RandomEqualize as RandomEqualize,
    RandomGrayscale as RandomGrayscale,
    RandomHSV as RandomHSV,
    RandomInvert as RandomInvert,
    RandomPhotometricDistort as RandomPhotometricDistort,
    RandomPosterize as RandomPosterize,
    RandomSolarize as RandomSolarize,
)
from standpipe.transform.pixels.compositions import (
    CopyPaste as CopyPaste,
    CutMixInstances as CutMixInstances,
    MixUpInstances as MixUpInstances,
    Mosaic as Mosaic,
    Recent as Recent,
)
from standpipe.transform.pixels.detection import (
    FixedSizeCrop as FixedSizeCrop,
    LetterBox as LetterBox,
    RandomIoUCrop as RandomIoUCrop,
    RandomShortestSize as RandomShortestSize,
    RandomSizeCrop as RandomSizeCrop,
    RandomZoomOut as RandomZoomOut,
    ScaleJitter as ScaleJitter,
)
from standpipe.transform.pixels.element import (
    Normalize as Normalize,
    ToDtype as ToDtype,
    ToLayout as ToLayout,
)
from standpipe.transform.pixels.erasing import RandomErasing as RandomErasing
from standpipe.transform.pixels.filters import (
    GaussianBlur as GaussianBlur,
    PillowGaussianBlur as PillowGaussianBlur,
    RandomAdjustSharpness as RandomAdjustSharpness,
)
from standpipe.transform.pixels.geometry import (
    CenterCrop as CenterCrop,
    RandomHorizontalFlip as RandomHorizontalFlip,
    RandomResize as RandomResize,
    RandomResizedCrop as RandomResizedCrop,
    RandomVerticalFlip as RandomVerticalFlip,
    Resize as Resize,
)
from standpipe.transform.pixels.groups import (
    RandomApply as RandomApply,
    RandomChoice as RandomChoice,
    RandomOrder as RandomOrder,
)
from standpipe.transform.pixels.instances import (
    ClampBoundingBoxes as ClampBoundingBoxes,
    SanitizeBoundingBoxes as SanitizeBoundingBoxes,
)
from standpipe.transform.pixels.timm_augment import (
    ThreeAugment as ThreeAugment,
    TimmRandAugment as TimmRandAugment,
)
from standpipe.transform.pixels.warps import (
    RandomAffine as RandomAffine,
    RandomPerspective as RandomPerspective,
    RandomRotation as RandomRotation,
)
from standpipe.transform.pixels.window import (
    PadImage as PadImage,
    RandomCrop as RandomCrop,
)
from standpipe.transform.python.mixing import (
    CutMix as CutMix,
    MixUp as MixUp,
)
from standpipe.transform.python.schedule import (
    PerStep as PerStep,
    Schedule as Schedule,
)

__version__: str
