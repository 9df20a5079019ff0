"""The transform place: what happens to a sample, and how adjacent transforms become one native kernel."""

from penstock.transform.code import Unreadable, digest_of
from penstock.transform.content import KEPT, ByContent
from penstock.transform.element import Normalize, ToDtype, ToLayout
from penstock.transform.function import BatchFunction, Function, Mixing
from penstock.transform.fuse import ImageKernel, fuse, split_at_cache
from penstock.transform.geometry import CenterCrop, RandomHorizontalFlip, RandomResizedCrop, Resize
from penstock.transform.gpu import NOT_INSTALLED, Decoder, NvDecoder, decoder_of_gpu, is_installed, numbered
from penstock.transform.mixing import CutMix, MixUp
from penstock.transform.native import decoder_version, simd_paths
from penstock.transform.parts import code_parts
from penstock.transform.program import (
    BATCH_OP,
    DATASET_OP,
    FunctionStep,
    NativeStep,
    SampleProgram,
    sample_program,
)
from penstock.transform.randomness import first_random, what_draws
from penstock.transform.verdict import Fault, fault_of

__all__ = [
    "BATCH_OP",
    "DATASET_OP",
    "KEPT",
    "NOT_INSTALLED",
    "BatchFunction",
    "ByContent",
    "CenterCrop",
    "CutMix",
    "Decoder",
    "Fault",
    "Function",
    "FunctionStep",
    "ImageKernel",
    "MixUp",
    "Mixing",
    "NativeStep",
    "Normalize",
    "NvDecoder",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "Resize",
    "SampleProgram",
    "ToDtype",
    "ToLayout",
    "Unreadable",
    "code_parts",
    "decoder_of_gpu",
    "decoder_version",
    "digest_of",
    "fault_of",
    "first_random",
    "fuse",
    "is_installed",
    "numbered",
    "sample_program",
    "simd_paths",
    "split_at_cache",
    "what_draws",
]
