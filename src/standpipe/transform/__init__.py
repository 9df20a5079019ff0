"""The transform place: the transforms of a sample, fused into native kernels where they are adjacent.

``standpipe`` imports the public transforms directly from their modules.
"""

from standpipe.transform.decoders.verdict import Fault, fault_of
from standpipe.transform.image import MASK
from standpipe.transform.kernels.fuse import ImageKernel, NativeKernel, fuse, split_at_cache
from standpipe.transform.kernels.heads import HeadsKernel
from standpipe.transform.kernels.mask import MaskKernel, is_mask, other_size
from standpipe.transform.kernels.native import decoder_name, decoder_version, only_libjpeg, simd_paths
from standpipe.transform.kernels.program import (
    BATCH_OP,
    DATASET_OP,
    EPOCH_OP,
    SAMPLE_OP,
    FunctionStep,
    NativeStep,
    SampleProgram,
    Step,
    sample_program,
)
from standpipe.transform.python.function import BatchFunction, Function, Mixing, Rng
from standpipe.transform.python.left_behind import Left, Move, checked, left_behind, moves, warning
from standpipe.transform.python.randomness import first_random, what_draws
from standpipe.transform.python.schedule import Schedule, at_epoch, first_epochs, is_scheduled

__all__ = [
    "BATCH_OP",
    "DATASET_OP",
    "EPOCH_OP",
    "MASK",
    "SAMPLE_OP",
    "BatchFunction",
    "Fault",
    "Function",
    "FunctionStep",
    "HeadsKernel",
    "ImageKernel",
    "Left",
    "MaskKernel",
    "Mixing",
    "Move",
    "NativeKernel",
    "NativeStep",
    "Rng",
    "SampleProgram",
    "Schedule",
    "Step",
    "at_epoch",
    "checked",
    "decoder_name",
    "decoder_version",
    "fault_of",
    "first_epochs",
    "first_random",
    "fuse",
    "is_mask",
    "is_scheduled",
    "left_behind",
    "moves",
    "only_libjpeg",
    "other_size",
    "sample_program",
    "simd_paths",
    "split_at_cache",
    "warning",
    "what_draws",
]
