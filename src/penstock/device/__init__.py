"""The device place: where the training step sees a batch."""

from penstock.device.host import HostMemory

__all__ = ["HostMemory"]
