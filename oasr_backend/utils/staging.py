"""What goes between host and device, without the one waiting for the other at every array."""

import logging
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

log = logging.getLogger(__name__)

Allocate = Callable[[tuple[int, ...], torch.dtype], Tensor]


def _page_locked(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype, pin_memory=True)


def _page_locked_or_not(shape: tuple[int, ...], dtype: torch.dtype, allocate: Allocate) -> Tensor:
    """Uninitialised host memory, page-locked unless the system locks no more pages."""
    try:
        return allocate(shape, dtype)
    except (RuntimeError, MemoryError) as error:
        log.warning("no page-locked memory for %s %s: %s", shape, dtype, error)
        return torch.empty(shape, dtype=dtype)


def staged(array: np.ndarray, allocate: Allocate = _page_locked) -> Tensor:
    """A copy of `array` in page-locked memory, which a device reads while the host goes on.

    The allocator keeps the memory until such a copy is done. In ordinary memory where the system locks no more pages.
    """
    plain = torch.from_numpy(np.ascontiguousarray(array))
    return _page_locked_or_not(tuple(array.shape), plain.dtype, allocate).copy_(plain)


def host_zeros(*shape: int, device: torch.device, allocate: Allocate = _page_locked) -> Tensor:
    """[*shape] float32 on the host, to be written through `numpy()` and moved with `send`."""
    if device.type != "cuda":
        return torch.zeros(shape)
    return _page_locked_or_not(shape, torch.float32, allocate).zero_()


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of `host_zeros` on the device; it must not be written again."""
    return tensor.to(device, non_blocking=True)


def to_device(array: np.ndarray, device: torch.device) -> Tensor:
    """`array` on the device; on CPU the same memory. Readers on other streams than the current one must wait for it."""
    if device.type != "cuda":
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)
    return staged(array).to(device, non_blocking=True)


def fill(target: Tensor, array: np.ndarray) -> None:
    """Overwrites `target` with `array` of its shape and dtype."""
    source = staged(array) if target.is_cuda else torch.from_numpy(np.ascontiguousarray(array))
    target.copy_(source, non_blocking=True)


class ReadBack:
    """Queues copies of device tensors into page-locked memory; the host waits once, for all of them, when it must."""

    def __init__(self, device: torch.device, allocate: Allocate = _page_locked):
        self._device = device
        self._allocate = allocate

    def __call__(self, tensor: Tensor) -> Tensor:
        """The host's copy, whole when what `queued` gave has returned; on CPU the tensor itself."""
        if self._device.type != "cuda":
            return tensor
        host = _page_locked_or_not(tuple(tensor.shape), tensor.dtype, self._allocate)
        return host.copy_(tensor, non_blocking=True)

    def queued(self) -> Callable[[], None] | None:
        """Ends the copies: a call that returns when they are whole; None when they are."""
        if self._device.type != "cuda":
            return None
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self._device))
        return event.synchronize
