"""The transform place: the transforms of a sample, fused into native kernels where they are adjacent.

``standpipe`` imports the public transforms directly from their modules.
"""

from standpipe.transform.decoders.verdict import Fault, fault_of
from standpipe.transform.image import MASK
from standpipe.transform.kernels.fuse import fuse, image_channels, split_at_cache
from standpipe.transform.kernels.heads import NativeKernel
from standpipe.transform.kernels.mask import is_mask, mask_of
from standpipe.transform.kernels.native import decoder_name, decoder_version, only_libjpeg, simd_paths
from standpipe.transform.kernels.program import (
    ANY_PX,
    BATCH_OP,
    DATASET_OP,
    EPOCH_OP,
    SAMPLE_OP,
    FunctionStep,
    NativeStep,
    SampleProgram,
    Step,
    sample_program,
    with_outputs,
)
from standpipe.transform.python.function import BatchFunction, Function, Mixing, Rng
from standpipe.transform.python.left_behind import Left, Move, checked, left_behind, moves, warning
from standpipe.transform.python.randomness import first_random, what_draws
from standpipe.transform.python.schedule import Schedule, at_epoch, first_epochs, is_scheduled

__all__ = [
    "ANY_PX",
    "BATCH_OP",
    "DATASET_OP",
    "EPOCH_OP",
    "MASK",
    "SAMPLE_OP",
    "BatchFunction",
    "Fault",
    "Function",
    "FunctionStep",
    "Left",
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
    "image_channels",
    "is_mask",
    "is_scheduled",
    "left_behind",
    "mask_of",
    "moves",
    "only_libjpeg",
    "sample_program",
    "simd_paths",
    "split_at_cache",
    "warning",
    "what_draws",
    "with_outputs",
]
