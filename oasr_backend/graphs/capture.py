"""Recording a step once and running it again on the same memory."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor


class Graph(ABC):
    """A recorded step: it reads the tensors it was recorded with, wherever their contents come from."""

    @abstractmethod
    def replay(self) -> Tensor:
        """Runs the step; its output, which the next replay of any graph may overwrite."""


class CaptureBackend(ABC):
    """A way to record steps, which do the same on the device whatever their inputs hold and ask the host nothing."""

    @abstractmethod
    def capture(self, step: Callable[[], Tensor], inputs: Sequence[Tensor]) -> Graph:
        """Records `step`, which reads `inputs`; it runs at least once, with what they hold now.

        Raises what the step raises, and RuntimeError when it cannot be recorded.
        """


# By type of device; where a device's is missing, every step runs eagerly.
CAPTURE_BACKENDS: dict[str, Callable[[torch.device], CaptureBackend]] = {}


def register_capture_backend(
    device_type: str,
) -> Callable[[Callable[[torch.device], CaptureBackend]], Callable[[torch.device], CaptureBackend]]:
    def register(build: Callable[[torch.device], CaptureBackend]) -> Callable[[torch.device], CaptureBackend]:
        CAPTURE_BACKENDS[device_type] = build
        return build

    return register


def captures_on(device: torch.device) -> bool:
    """Whether steps on this device can be captured."""
    return device.type in CAPTURE_BACKENDS


class CudaGraph(Graph):
    def __init__(self, graph: torch.cuda.CUDAGraph, output: Tensor):
        self._graph = graph
        self._output = output

    def replay(self) -> Tensor:
        self._graph.replay()
        return self._output


@register_capture_backend("cuda")
class CudaCapture(CaptureBackend):
    """CUDA graphs that share one memory pool; only one runs at a time, so they may use the same memory."""

    # The first run loads kernels and makes workspaces, which no capture may.
    _WARM_UPS = 2

    def __init__(self, device: torch.device):
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)

    def capture(self, step: Callable[[], Tensor], inputs: Sequence[Tensor]) -> Graph:
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            for _ in range(self._WARM_UPS):
                step()
        current.wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        # thread_local: other threads may allocate meanwhile, which by default would spoil the capture.
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            output = step()
        return CudaGraph(graph, output)
