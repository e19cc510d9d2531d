"""Long recordings: cut into windows that go through the normal path, and joined to one output."""

import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from oasr_backend.engine.executor.offline import failed
from oasr_backend.engine.longform import CutRule, Heard, Window, cut
from oasr_backend.engine.output_processor import OutputProcessor
from oasr_backend.engine.request import Request, RequestOutput

log = logging.getLogger(__name__)

# Windows of one recording that wait or run at a time: the next recording, or a short clip, gets its turn between them.
_IN_FLIGHT = 8


@dataclass
class _Recording:
    request: Request
    samples: np.ndarray
    windows: Iterator[Window]
    cut_so_far: list[Window] = field(default_factory=list)
    heard: dict[int, Heard] = field(default_factory=dict)
    in_flight: dict[str, tuple[int, Request]] = field(default_factory=dict)
    warnings: dict[str, None] = field(default_factory=dict)
    """Each once, in order."""


class LongRecordings:
    """What has been cut of every recording, what runs, and what was heard. Only under the engine's lock."""

    def __init__(
        self,
        rule: CutRule,
        outputs: OutputProcessor,
        admit: Callable[[Request], None],
        drop: Callable[[Request], None],
    ):
        """`admit` queues a window's request, `drop` takes one out of the queue again."""
        self._rule = rule
        self._outputs = outputs
        self._admit = admit
        self._drop = drop
        self._recordings: dict[str, _Recording] = {}

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._recordings

    def __len__(self) -> int:
        return len(self._recordings)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._recordings))

    def is_long(self, samples: int) -> bool:
        """Whether a clip of so many samples is cut."""
        return samples > self._rule.window

    def open(self, request: Request, samples: np.ndarray) -> None:
        """Queues a recording's first windows."""
        recording = _Recording(request, samples, cut(samples, self._rule))
        self._recordings[request.request_id] = recording
        self._release(recording)

    def abort(self, request_id: str) -> None:
        """Forgets a recording and takes its windows out of the queue."""
        self._drop_all(self._recordings[request_id])

    def _drop_all(self, recording: _Recording) -> None:
        self._recordings.pop(recording.request.request_id, None)
        for _, child in recording.in_flight.values():
            self._drop(child)

    def absorb(self, batch: Sequence[Request], outputs: Sequence[RequestOutput]) -> list[RequestOutput]:
        """The outputs of a batch with those of windows replaced by those of recordings that they complete."""
        passed = []
        for request, output in zip(batch, outputs, strict=True):
            if request.parent_id is None:
                passed.append(output)
            elif request.parent_id in self._recordings:
                recording = self._recordings[request.parent_id]
                try:
                    passed += self._take(recording, request, output)
                except Exception as error:
                    log.exception("a recording could not be joined")
                    self._drop_all(recording)
                    passed.append(failed(recording.request, "offline_forward", error))
        return passed

    def _take(self, recording: _Recording, child: Request, output: RequestOutput) -> list[RequestOutput]:
        index, _ = recording.in_flight.pop(child.request_id)
        parent = recording.request
        if child.hypothesis is None:
            self.abort(parent.request_id)
            samples = parent.samples_received
            audio_seconds = samples / self._rule.sample_rate
            return [replace(output, request_id=parent.request_id, samples_done=samples, audio_seconds=audio_seconds)]
        window = recording.cut_so_far[index]
        unit = self._rule.unit
        recording.heard[index] = Heard(
            child.hypothesis,
            self._outputs.pieces(child.hypothesis),
            first_frame=window.start // unit,
            shared_frames=window.shared // unit,
        )
        recording.warnings.update(dict.fromkeys(child.warnings))
        self._release(recording)
        if recording.in_flight:
            return []
        del self._recordings[parent.request_id]
        parts = [recording.heard[index] for index in sorted(recording.heard)]
        return [self._outputs.recording_output(parent, parts, tuple(recording.warnings))]

    def _release(self, recording: _Recording) -> None:
        """Queues windows until enough are on their way."""
        parent = recording.request
        while len(recording.in_flight) < _IN_FLIGHT and (window := next(recording.windows, None)):
            index = len(recording.cut_so_far)
            recording.cut_so_far.append(window)
            child = Request(
                # No caller can come upon it.
                request_id=uuid.uuid4().hex,
                streaming=False,
                priority=parent.priority,
                audio=recording.samples[window.start : window.end],
                samples_received=window.end - window.start,
                options=parent.options,
                parent_id=parent.request_id,
            )
            recording.in_flight[child.request_id] = index, child
            self._admit(child)
