"""Convert a batch of arrays to tensors, in the form that a training step takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch

from standpipe import PlanError
from standpipe.spec import VALID
from standpipe.torch.device import MOST_SLOTS, CudaDevice
from standpipe.torch.memory import TensorMemory
from standpipe.torch.sending import Wanted, as_tensor

MEMORY_FORMATS = (None, torch.contiguous_format, torch.channels_last)


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a batch of tensors.

    fields         a tuple of names for a tuple of tensors, one name for a single tensor, a mapping from keys
                   to names for a dict, None for a dict of all fields
    device         device of the tensors
    dtype          dtype of floating-point fields; None: as the pipeline makes them
    memory_format  memory format of fields of four dimensions that aren't uint8; None: as the pipeline
                   makes them
    kept           fields that keep their dtype, such as boxes
    """

    fields: tuple[str, ...] | Mapping[str, str] | str | None
    device: torch.device
    dtype: torch.dtype | None
    memory_format: torch.memory_format | None
    kept: frozenset[str] = frozenset()

    @classmethod
    def of(cls, fields: object, device: object, dtype: object, memory_format: object) -> Form:
        """Return the form for the arguments of ``standpipe.torch.loader``. Raises ``PlanError`` for invalid ones."""
        names = (
            list(fields.values() if isinstance(fields, Mapping) else fields) if _is_many(fields) else [fields]
        )
        if fields is not None and not (names and all(isinstance(name, str) for name in names)):
            raise PlanError(
                f"fields must be names such as ('image', 'label'), or a dict such as {{'pixel_values': 'image'}} for "
                f"other keys, or None for a dict of all, got {fields!r}"
            )
        try:
            where = torch.device(device)  # type: ignore[call-overload]
        except TypeError:
            raise PlanError(
                f"device must be 'cpu', 'cuda', a name such as 'cuda:1', or a torch.device, got {device!r}"
            ) from None
        except RuntimeError as error:
            raise PlanError(f"device={device!r}: {error}") from error
        if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            raise PlanError(f"dtype must be a floating-point dtype such as torch.bfloat16, got {dtype!r}")
        if not any(memory_format is each for each in MEMORY_FORMATS):
            raise PlanError(
                f"memory_format must be torch.channels_last or torch.contiguous_format, got {memory_format!r}"
            )
        kept = tuple(names) if isinstance(fields, Sequence) and not isinstance(fields, str) else fields
        return cls(kept, where, dtype, memory_format)  # type: ignore[arg-type]

    def place(self, *, prefetch: int = 1, static_buffers: bool = False) -> CudaDevice | TensorMemory:
        """Return the ``device=`` for ``Pipeline.loader``: a CUDA device, or host memory for all other devices.

        From host memory, ``batch`` copies tensors to such another device. Raises ``PlanError``.

        prefetch, static_buffers  ``device_prefetch`` and ``static_buffers`` of ``standpipe.torch.loader``
        """
        if not isinstance(prefetch, int) or isinstance(prefetch, bool) or not 1 <= prefetch < MOST_SLOTS:
            raise PlanError(
                f"device_prefetch must be an integer from 1 to {MOST_SLOTS - 1} (batches copied ahead), got "
                f"{prefetch!r}"
            )
        if not isinstance(static_buffers, bool):
            raise PlanError(f"static_buffers must be True or False, got {static_buffers!r}")
        wanted = Wanted(self.delivered, self.dtype, self.memory_format, static_buffers)
        return (
            CudaDevice(self.device, wanted, prefetch + 1)
            if self.device.type == "cuda"
            else TensorMemory(wanted)
        )

    @property
    def has_valid(self) -> bool:
        """True if a batch in this form has ``valid`` wherever rows are padding."""
        return self.fields is None or VALID in self._names()

    @property
    def delivered(self) -> frozenset[str] | None:
        """The names of the fields that a batch in this form has; None: all."""
        return None if self.fields is None else frozenset(self._names())

    def check(self, known: Sequence[str]) -> None:
        """Raise ``PlanError`` if ``fields`` has a name that is neither in ``known`` nor ``"valid"``.

        known  names of a batch's fields
        """
        for name in self._names():
            if name not in known and name != VALID:
                raise PlanError(
                    f"fields={self.fields!r} names an unknown field. A batch has {', '.join(known)}; None gives all"
                )

    def batch(self, arrays: Mapping[str, Any]) -> Any:
        """Return a batch in this form, from its arrays or tensors by field.

        A tensor shares its array's memory unless device, dtype or memory format differ. Lists stay lists; of images
        with boxes, they are lists of tensors.
        """
        if self.fields is None:
            return {name: self._tensor(name, value) for name, value in arrays.items()}
        self.check(list(arrays))
        if VALID not in arrays and VALID in self._names():
            every = torch.ones(len(arrays["index"]), dtype=torch.bool, device=self._device_of(arrays))
            arrays = {**arrays, VALID: every}
        if isinstance(self.fields, str):
            return self._tensor(self.fields, arrays[self.fields])
        if isinstance(self.fields, Mapping):
            return {key: self._tensor(name, arrays[name]) for key, name in self.fields.items()}
        return tuple(self._tensor(name, arrays[name]) for name in self.fields)

    def _names(self) -> Sequence[str]:
        if isinstance(self.fields, Mapping):
            return list(self.fields.values())
        return [self.fields] if isinstance(self.fields, str) else self.fields or ()

    def _device_of(self, arrays: Mapping[str, Any]) -> torch.device:
        """Return the device of a batch's tensors, with its number if ``self.device`` has none.

        ``cuda`` without a number can mean different devices in different threads.
        """
        there = (each.device for each in arrays.values() if isinstance(each, torch.Tensor))
        return next((device for device in there if self._is_on(device)), self.device)

    def _is_on(self, device: torch.device) -> bool:
        return device.type == self.device.type and self.device.index in (None, device.index)

    def _tensor(self, name: str, value: Any) -> Any:
        if self.kept and isinstance(value, list):  # images of differing size
            return [self._tensor(name, each) for each in value]
        if isinstance(value, torch.Tensor):
            tensor = value
        elif (made := as_tensor(value)) is not None:
            tensor = made
        else:
            return value
        dtype = self.dtype if tensor.is_floating_point() and name not in self.kept else None
        tensor = tensor.to(None if self._is_on(tensor.device) else self.device, dtype)
        if self.memory_format is not None and tensor.ndim == 4 and tensor.dtype != torch.uint8:
            tensor = tensor.contiguous(memory_format=self.memory_format)
        return tensor


def _is_many(fields: object) -> TypeGuard[Mapping[str, str] | Sequence[str]]:
    return isinstance(fields, Mapping | Sequence) and not isinstance(fields, str)
