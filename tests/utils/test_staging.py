"""What goes between host and device; page-locked memory is made up where there is no GPU."""

import numpy as np
import pytest
import torch
from torch import Tensor

from oasr_backend.utils.staging import ReadBack, fill, host_zeros, send, staged, to_device

CPU = torch.device("cpu")
gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


class PageLocked:
    """An allocator that counts, and that locks no page when it is told so."""

    def __init__(self, works: bool = True):
        self.shapes: list[tuple[int, ...]] = []
        self._works = works

    def __call__(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        if not self._works:
            raise RuntimeError("CUDA error: out of memory")
        self.shapes.append(shape)
        return torch.empty(shape, dtype=dtype)


def test_on_a_cpu_an_array_stays_where_it_is() -> None:
    array = np.arange(6).reshape(2, 3)
    tensor = to_device(array, CPU)
    assert tensor.data_ptr() == array.ctypes.data and tensor.dtype is torch.int64


def test_a_part_of_an_array_is_copied_whole() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert to_device(array[:, 1:3], CPU).tolist() == [[1, 2], [5, 6], [9, 10]]


def test_an_array_is_staged_in_page_locked_memory() -> None:
    allocate = PageLocked()
    array = np.arange(6, dtype=np.int64).reshape(2, 3)
    copy = staged(array, allocate)
    assert allocate.shapes == [(2, 3)]
    assert copy.tolist() == array.tolist() and copy.data_ptr() != array.ctypes.data


def test_ordinary_memory_serves_where_no_page_can_be_locked(caplog: pytest.LogCaptureFixture) -> None:
    array = np.arange(6, dtype=np.int64)
    assert staged(array, PageLocked(works=False)).tolist() == array.tolist()
    assert "no page-locked memory for (6,) torch.int64" in caplog.text


@pytest.mark.parametrize(("device", "works", "locked"), [("cpu", True, 0), ("cuda", True, 1), ("cuda", False, 0)])
def test_samples_are_gathered_where_a_device_reads_them(device: str, works: bool, locked: int) -> None:
    allocate = PageLocked(works)
    tensor = host_zeros(2, 3, device=torch.device(device), allocate=allocate)
    assert tensor.eq(0).all() and tensor.dtype is torch.float32 and len(allocate.shapes) == locked
    tensor.numpy()[1, 1:] = 5
    assert send(tensor, CPU).tolist() == [[0, 0, 0], [0, 5, 5]]


def test_a_tensor_is_filled_in_place() -> None:
    target = torch.zeros(2, 3, dtype=torch.int64)
    address = target.data_ptr()
    fill(target, np.arange(6).reshape(2, 3))
    assert target.tolist() == [[0, 1, 2], [3, 4, 5]] and target.data_ptr() == address


def test_on_a_cpu_nothing_is_read_back() -> None:
    read = ReadBack(CPU)
    tensor = torch.arange(3)
    assert read(tensor) is tensor and read.queued() is None


@pytest.mark.parametrize("works", [True, False])
def test_a_device_is_read_into_page_locked_memory_where_there_is_some(works: bool) -> None:
    allocate = PageLocked(works)
    tensor = torch.arange(6.0).view(2, 3)
    assert ReadBack(torch.device("cuda"), allocate)(tensor).equal(tensor)
    assert allocate.shapes == ([(2, 3)] if works else [])


@pytest.mark.parametrize("device", [pytest.param("cuda", marks=gpu)])
def test_a_device_gets_and_gives_what_was_sent(device: str) -> None:
    array = np.arange(1000, dtype=np.int64)
    there = to_device(array, torch.device(device))
    read = ReadBack(there.device)
    back = read(there * 2)
    wait = read.queued()
    assert wait is not None
    wait()
    assert back.is_pinned() and back.tolist() == (array * 2).tolist()
