"""Work that a GPU does beside its forward passes."""

from collections.abc import Callable

import torch
from torch import Tensor


class SideStream:
    """A CUDA stream of its own; where there is none, work is done in place."""

    def __init__(self, device: torch.device):
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def run(self, work: Callable[[], Tensor]) -> Tensor:
        """What `work` makes, which must come from the host and from constants alone: it waits for nothing.

        The current stream waits for it before its own next work, so that the result is read as any other.
        """
        if self._stream is None:
            return work()
        with torch.cuda.stream(self._stream):
            made = work()
        current = torch.cuda.current_stream(self._device)
        current.wait_stream(self._stream)
        # Else the allocator might hand its memory to the side stream while the current one still reads it.
        made.record_stream(current)
        return made
