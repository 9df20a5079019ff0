"""The device place: where the training step sees a batch."""

from standpipe.device.host import HostMemory
