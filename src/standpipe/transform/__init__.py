"""The transform place: the transforms of a sample, fused into native kernels where they are adjacent.

``standpipe`` imports the public transforms directly from their modules.
"""

from standpipe.transform.decoders.verdict import Fault, fault_of
from standpipe.transform.kernels.fuse import field_of_view, fuse, split_at_cache
from standpipe.transform.kernels.heads import Input, NativeKernel
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
    moves_kind,
    sample_program,
    with_outputs,
)
from standpipe.transform.kinds import FIELD_KINDS, IMAGE, MASK, FieldKind, as_bytes, kinds_of
from standpipe.transform.python.function import BatchFunction, Function, Mixing, Rng
from standpipe.transform.python.left_behind import Left, Move, checked, left_behind, moves, warning
from standpipe.transform.python.randomness import first_random, what_draws
from standpipe.transform.python.schedule import Schedule, at_epoch, first_epochs, is_scheduled

__all__ = [
    "ANY_PX",
    "BATCH_OP",
    "DATASET_OP",
    "EPOCH_OP",
    "FIELD_KINDS",
    "IMAGE",
    "MASK",
    "SAMPLE_OP",
    "BatchFunction",
    "Fault",
    "FieldKind",
    "Function",
    "FunctionStep",
    "Input",
    "Left",
    "Mixing",
    "Move",
    "NativeKernel",
    "NativeStep",
    "Rng",
    "SampleProgram",
    "Schedule",
    "Step",
    "as_bytes",
    "at_epoch",
    "checked",
    "decoder_name",
    "decoder_version",
    "fault_of",
    "field_of_view",
    "first_epochs",
    "first_random",
    "fuse",
    "is_scheduled",
    "kinds_of",
    "left_behind",
    "moves",
    "moves_kind",
    "only_libjpeg",
    "sample_program",
    "simd_paths",
    "split_at_cache",
    "warning",
    "what_draws",
    "with_outputs",
]
