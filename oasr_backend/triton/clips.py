"""Offline requests: each brings one or more clips and is answered when all of them are done."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from oasr_backend.engine import Admission, RequestOutput, RequestSpec
from oasr_backend.errors import OptionError
from oasr_backend.triton import errors
from oasr_backend.triton.errors import Refusal
from oasr_backend.triton.request_options import ClipOptions


class ClipEngine(Protocol):
    """What offline requests need of the engine."""

    @property
    def sample_rate(self) -> int: ...

    def add_requests_batch(self, specs: Sequence[RequestSpec | Mapping[str, Any]]) -> list[Admission]: ...

    def abort_request(self, request_id: str) -> bool: ...


# Requests that the server is asked about at a time: each is a round trip, and a thousand may wait.
_ASKED_AT_ONCE = 64


class ClipReply(Protocol):
    """The one answer that a Triton request gets, with an output for every clip."""

    def answer(self, outputs: list[RequestOutput]) -> None: ...

    def refuse(self, refusal: Refusal) -> None: ...

    def drop(self) -> None:
        """Ends a request that was taken back."""

    def is_cancelled(self) -> bool:
        """Whether the client is known to have taken the request back; asks the server for the next call."""


@dataclass(frozen=True)
class ClipBatch:
    """A Triton request as it arrived; `clips` are [n] float32 or int16."""

    clips: tuple[np.ndarray, ...]
    options: ClipOptions
    reply: ClipReply
    refusal: Refusal | None = None


@dataclass
class _Waiting:
    reply: ClipReply
    order: list[str]
    outputs: dict[str, RequestOutput]
    seconds: dict[str, float]
    """Audio of every clip."""


class ClipTable:
    """Requests that wait for their clips."""

    def __init__(self, engine: ClipEngine, max_queued: int, max_queued_seconds: float):
        self._engine = engine
        self._max_queued = max_queued
        self._max_queued_seconds = max_queued_seconds
        self._by_request: dict[str, _Waiting] = {}
        self._asked = 0
        self.refused = 0
        self.failed = 0
        self.finished = 0
        self.cancelled = 0

    @property
    def queued(self) -> int:
        """Clips that are not done."""
        return len(self._by_request)

    @property
    def queued_seconds(self) -> float:
        """Audio of the clips that are not done."""
        return sum(waiting.seconds[request_id] for request_id, waiting in self._by_request.items())

    @property
    def expects_more(self) -> bool:
        """Clips come from anybody at any time."""
        return True

    def arrive(self, batch: ClipBatch, now: float) -> None:
        """Takes a request in; its reply is used exactly once, now or later."""
        try:
            if batch.refusal is not None:
                raise batch.refusal
            self._check_room(batch)
            self._queue(batch)
        except Refusal as refusal:
            self.refused += 1
            batch.reply.refuse(refusal)

    def _check_room(self, batch: ClipBatch) -> None:
        """Raises Refusal for more than may wait."""
        if len(batch.clips) > self._max_queued:
            raise errors.too_many_clips(len(batch.clips), self._max_queued)
        if self.queued + len(batch.clips) > self._max_queued:
            raise errors.clips_queued(self.queued, self._max_queued)
        seconds, queued = sum(map(self._seconds, batch.clips)), self.queued_seconds
        if seconds > self._max_queued_seconds:
            raise errors.request_too_long(seconds, self._max_queued_seconds)
        if queued + seconds > self._max_queued_seconds:
            raise errors.clip_audio_queued(queued, seconds, self._max_queued_seconds)

    def _seconds(self, clip: np.ndarray) -> float:
        return len(clip) / self._engine.sample_rate

    def _queue(self, batch: ClipBatch) -> None:
        decoding, priority = batch.options.decoding, batch.options.queue_priority or 0
        admissions = self._engine.add_requests_batch(
            [RequestSpec(clip, streaming=False, priority=priority, decoding=decoding) for clip in batch.clips]
        )
        order = [admission.request_id for admission in admissions if admission.request_id is not None]
        for row, admission in enumerate(admissions):
            if admission.error is not None:
                # A request is answered whole or not at all.
                for request_id in order:
                    self._engine.abort_request(request_id)
                if isinstance(admission.error, OptionError):
                    raise errors.invalid_option(str(admission.error)) from admission.error
                where = f"clip {row}: " if len(batch.clips) > 1 else ""
                raise errors.invalid_input(f"{where}{admission.error}") from admission.error
        waiting = _Waiting(batch.reply, order, {}, dict(zip(order, map(self._seconds, batch.clips), strict=True)))
        self._by_request.update(dict.fromkeys(order, waiting))

    def deliver(self, outputs: Iterable[RequestOutput], now: float) -> None:
        """Passes the engine's outputs on to the requests that they complete."""
        for output in outputs:
            waiting = self._by_request.pop(output.request_id, None)
            if waiting is None:
                continue
            waiting.outputs[output.request_id] = output
            if len(waiting.outputs) == len(waiting.order):
                self._complete(waiting)

    def _complete(self, waiting: _Waiting) -> None:
        ordered = [waiting.outputs[request_id] for request_id in waiting.order]
        failed = next((output for output in ordered if output.finish_reason == "error"), None)
        if failed is None:
            self.finished += 1
            waiting.reply.answer(ordered)
        else:
            self.failed += 1
            is_input = failed.error_stage == "offline_prep"
            refuse = errors.invalid_input if is_input else errors.clip_failed
            waiting.reply.refuse(refuse(failed.error or "error"))

    def reap(self, now: float) -> None:
        """Gives up requests that were cancelled, so that no step is spent on them; looks at some each time, in turns.

        A server that is behind would else go on with what nobody waits for any more, and never catch up.
        """
        waiting = self._requests()
        for _ in range(min(_ASKED_AT_ONCE, len(waiting))):
            self._asked += 1
            request = waiting[self._asked % len(waiting)]
            if request.reply.is_cancelled():
                self._give_up(request)

    def _give_up(self, request: _Waiting) -> None:
        self.cancelled += 1
        for request_id in request.order:
            if self._by_request.pop(request_id, None) is not None:
                self._engine.abort_request(request_id)
        request.reply.drop()

    def _requests(self) -> list[_Waiting]:
        """Those with clips that are not done, oldest first."""
        return list({id(request): request for request in self._by_request.values()}.values())

    def close(self, refusal: Refusal) -> None:
        """Ends every request; whoever waits gets `refusal`."""
        waiting = self._requests()
        for request_id in self._by_request:
            self._engine.abort_request(request_id)
        self._by_request.clear()
        for request in waiting:
            request.reply.refuse(refusal)
