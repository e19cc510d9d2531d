"""Page-locked audio buffers and their account; the memory itself is made up where there is no GPU."""

import gc
import threading

import pytest
import torch
from torch import Tensor

from oasr_backend.utils.pinned import AudioBuffers, PageLockedCache, SampleAllowance
from tests.engine.engines import drain, make_engine, speech

CUDA = torch.device("cuda", 0)


def make_buffers(each: float = 2.0, in_all: float = 5.0, device: torch.device = CUDA) -> AudioBuffers:
    return AudioBuffers(device, 1000, each, in_all, torch.empty)


def test_a_buffer_is_a_row_of_float32() -> None:
    buffer = make_buffers().new(500)
    assert buffer is not None
    assert (buffer.shape, buffer.dtype) == ((500,), torch.float32)


def test_a_cpu_engine_has_none() -> None:
    buffers = make_buffers(device=torch.device("cpu"))
    assert buffers.new(500) is None
    assert buffers.allowance.lent == 0


@pytest.mark.parametrize(("samples", "given"), [(-1, False), (0, False), (1, True), (2000, True), (2001, False)])
def test_length_is_bounded(samples: int, given: bool) -> None:
    buffers = make_buffers()
    assert (buffers.new(samples) is not None) == given
    assert buffers.allowance.lent == 0


def test_the_total_is_bounded_and_falls_as_buffers_die() -> None:
    buffers = make_buffers()
    lent = [buffers.new(2000), buffers.new(2000), buffers.new(1000)]
    assert all(buffer is not None for buffer in lent)
    assert buffers.allowance.lent == 5000
    assert buffers.new(1) is None
    del lent[0]
    assert buffers.allowance.lent == 3000
    lent.append(buffers.new(2000))
    assert lent[-1] is not None
    assert buffers.new(1) is None
    lent.clear()
    assert buffers.allowance.lent == 0


@pytest.mark.parametrize("keep", [lambda buffer: buffer[100:200], lambda buffer: buffer.numpy()], ids=["view", "numpy"])
def test_a_buffer_counts_as_long_as_anything_keeps_its_memory(keep: object) -> None:
    buffers = make_buffers()
    buffer = buffers.new(2000)
    assert callable(keep)
    kept = [keep(buffer)]
    del buffer
    gc.collect()
    assert buffers.allowance.lent == 2000
    kept.clear()
    assert buffers.allowance.lent == 0


def test_a_failure_to_lock_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    failures: list[Exception] = [RuntimeError("CUDA error: out of memory"), MemoryError()]

    def allocate(samples: int) -> Tensor:
        if failures:
            raise failures.pop()
        return torch.empty(samples)

    buffers = AudioBuffers(CUDA, 1000, 2.0, 5.0, allocate)
    assert buffers.new(2000) is None
    assert buffers.new(2000) is None
    assert buffers.allowance.lent == 0
    assert "no page-locked memory for 2000 samples: CUDA error: out of memory" in caplog.text
    buffer = buffers.new(2000)
    assert buffer is not None and buffers.allowance.lent == 2000


def test_nothing_is_lent_where_the_limits_are_zero() -> None:
    assert make_buffers(each=0.0).new(1) is None
    assert make_buffers(in_all=0.0).new(1) is None


def test_threads_never_take_more_than_there_is() -> None:
    allowance = SampleAllowance(10, 100)
    most: list[int] = []
    taken: list[int] = []

    def work() -> None:
        for _ in range(3000):
            if allowance.take(7):
                most.append(allowance.lent)
                allowance.give_back(7)
            else:
                taken.append(1)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert most and max(most) <= 100
    assert allowance.lent == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_the_memory_is_page_locked() -> None:
    buffers = AudioBuffers(torch.device("cuda"), 16000, 1.0, 2.0)
    buffer = buffers.new(16000)
    assert buffer is not None and buffer.is_pinned()
    del buffer
    assert buffers.allowance.lent == 0


class Memory:
    """What an allocator holds."""

    def __init__(self, held: int):
        self.held = held
        self.emptied = 0

    def empty(self) -> None:
        self.emptied += 1
        self.held = 0


@pytest.mark.parametrize(("held", "is_emptied"), [(100, False), (300, False), (301, True), (5000, True)])
def test_an_idle_engine_gives_back_what_is_past_twice_the_audio_it_lends(held: int, is_emptied: bool) -> None:
    memory = Memory(100)
    cache = PageLockedCache(100, lambda: memory.held, memory.empty)
    memory.held = held
    assert cache.trim() == is_emptied
    assert memory.emptied == is_emptied
    assert not cache.trim()


def test_an_engine_trims_when_nothing_is_left_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory(0)
    engine = make_engine()
    assert engine._page_locked is None
    monkeypatch.setattr(engine, "_page_locked", PageLockedCache(10, lambda: memory.held, memory.empty))
    memory.held = 21
    request_id = engine.add_streaming_request()
    engine.feed_chunk(request_id, speech(20000))
    engine.step()
    assert memory.emptied == 0
    engine.feed_chunk(request_id, [], is_last=True)
    drain(engine)
    assert memory.emptied == 1
