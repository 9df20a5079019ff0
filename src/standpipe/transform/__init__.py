"""The transform place: the transforms of a sample, fused into native kernels where they are adjacent.

``standpipe`` imports the public transforms directly from their modules.
"""

from standpipe.transform.decoders.verdict import Fault, fault_of
from standpipe.transform.kernels.composed import ComposedKernel, composed_kernel, has_compositions
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
from standpipe.transform.python.schedule import PerStep, Schedule, is_scheduled, segments_of
