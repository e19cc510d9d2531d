"""The peer at work under onnxruntime."""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime

from benchmarks.timing import Turn

_SECONDS_PER_FRAME = 0.04


def open_session(path: Path, threads: int) -> onnxruntime.InferenceSession:
    """All optimisations, one operator at a time, `threads` threads that spin between operators (the default)."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


class ChunkSession:
    """Streams of a chunk-wise model. Caches stay in onnxruntime's memory: a call writes the next call's inputs."""

    def __init__(self, path: Path, threads: int):
        self._session = session = open_session(path, threads)
        shapes = {one.name: tuple(one.shape) for one in session.get_inputs()}
        self.batch, window, bins = shapes["chunk"]
        self._cached = shapes["att_cache"][3]
        self.chunk = shapes["att_mask"][3] - self._cached
        self._window, self._bins = window, bins
        self._inputs = {
            "chunk": _value(np.zeros(shapes["chunk"], np.float32)),
            "offset": _value(np.zeros(shapes["offset"], np.int64)),
            "att_mask": _value(np.zeros(shapes["att_mask"], bool)),
        }
        self._log_probs = _value(np.zeros(session.get_outputs()[0].shape, np.float32))
        self._caches = [
            {name: _value(np.zeros(shapes[name], np.float32)) for name in ("att_cache", "cnn_cache")} for _ in range(2)
        ]
        self._bindings = [self._bind(old, new) for old, new in (self._caches, self._caches[::-1])]
        self.restart()

    def restart(self) -> None:
        """New streams: nothing in the caches."""
        for caches in self._caches:
            for value in caches.values():
                value.update_inplace(np.zeros(value.shape(), np.float32))
        self._offset = self._turn = 0

    def call(self, features: np.ndarray) -> np.ndarray:
        """The next window of every stream, [B, window, bins] float32 -> log-probabilities [B, chunk, V]."""
        self._inputs["chunk"].update_inplace(np.ascontiguousarray(features))
        self._inputs["offset"].update_inplace(np.full(self.batch, self._offset, np.int64))
        seen = np.arange(self._cached + self.chunk) >= self._cached - self._offset
        mask = np.ascontiguousarray(np.broadcast_to(seen, (self.batch, 1, 1, len(seen))))
        self._inputs["att_mask"].update_inplace(mask)
        self._session.run_with_iobinding(self._bindings[self._turn % 2])
        self._turn += 1
        self._offset += self.chunk
        return self._log_probs.numpy()

    def turn(self, seconds: float) -> Turn:
        """Calls for so long, with noise, away from the end of the table of positions."""
        features = np.random.default_rng(0).standard_normal((self.batch, self._window, self._bins)).astype(np.float32)
        steps: list[float] = []
        while sum(steps) < seconds:
            if self._offset > 4000:
                self.restart()
            started = time.perf_counter()
            self.call(features)
            steps.append(time.perf_counter() - started)
        return Turn(len(steps) * self.batch * self.chunk * _SECONDS_PER_FRAME, tuple(steps))

    def _bind(
        self, old: dict[str, onnxruntime.OrtValue], new: dict[str, onnxruntime.OrtValue]
    ) -> onnxruntime.IOBinding:
        binding = self._session.io_binding()
        for name, value in (self._inputs | old).items():
            binding.bind_ortvalue_input(name, value)
        binding.bind_ortvalue_output("log_probs", self._log_probs)
        for name, value in new.items():
            binding.bind_ortvalue_output(f"r_{name}", value)
        return binding


class ClipSession:
    """Padded batches of a full-utterance model."""

    def __init__(self, path: Path, threads: int):
        self._session = open_session(path, threads)

    def call(self, features: np.ndarray, lengths: Sequence[int]) -> np.ndarray:
        """`features` [B, T, bins], `lengths` encoder frames -> log-probabilities [B, n, V]."""
        feeds = {"features": features, "lengths": np.asarray(lengths, np.int64)}
        (log_probs,) = self._session.run(None, feeds)
        return log_probs

    def turn(self, batches: Sequence[tuple[np.ndarray, Sequence[int]]]) -> Turn:
        """One pass over all batches."""
        steps = []
        for features, lengths in batches:
            started = time.perf_counter()
            self.call(features, lengths)
            steps.append(time.perf_counter() - started)
        return Turn(sum(sum(lengths) for _, lengths in batches) * _SECONDS_PER_FRAME, tuple(steps))


def _value(array: np.ndarray) -> onnxruntime.OrtValue:
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)
