"""The device place: where the training step sees a batch."""

from penstock.device.host import lend_to_host

__all__ = ["lend_to_host"]
