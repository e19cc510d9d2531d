"""Offline requests: each brings one or more clips and is answered when all of them are done."""

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from oasr_backend.engine import Admission, RequestOutput, RequestSpec
from oasr_backend.errors import OptionError
from oasr_backend.triton import errors
from oasr_backend.triton.errors import Refusal
from oasr_backend.triton.request_options import ClipOptions

# Requests that the server is asked about in a second: each is a round trip, and a thousand may wait.
_ASKED_A_SECOND = 128.0


class ClipEngine(Protocol):
    """What offline requests need of the engine."""

    @property
    def sample_rate(self) -> int: ...

    def add_requests_batch(self, specs: Sequence[RequestSpec | Mapping[str, Any]]) -> list[Admission]: ...

    def abort_request(self, request_id: str) -> bool: ...


class ClipReply(Protocol):
    """The one answer that a Triton request gets, with an output for every clip."""

    def answer(self, outputs: list[RequestOutput]) -> None: ...

    def refuse(self, refusal: Refusal) -> None: ...

    def drop(self) -> None:
        """Ends a request that was taken back."""

    @property
    def is_cancelled(self) -> bool:
        """Whether the client is known to have taken the request back."""

    def ask_if_cancelled(self) -> None:
        """Asks the server; a later `is_cancelled` has the answer."""


@dataclass(frozen=True)
class ClipBatch:
    """A Triton request as it arrived; `clips` are [n] float32 or int16."""

    clips: tuple[np.ndarray, ...]
    options: ClipOptions
    reply: ClipReply
    refusal: Refusal | None = None


@dataclass(eq=False)
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
        # In the order of their turns to be asked about.
        self._requests: OrderedDict[_Waiting, None] = OrderedDict()
        self._reaped: float | None = None
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
        self._requests[waiting] = None

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
        del self._requests[waiting]
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
        """Gives up requests that were cancelled, so that no step is spent on them; asks about others, in turns.

        A server that is behind would else go on with what nobody waits for any more, and never catch up.
        """
        for request in [request for request in self._requests if request.reply.is_cancelled]:
            self._give_up(request)
        # Steps that take long are no reason to learn of it later.
        passed_s = 0.0 if self._reaped is None else now - self._reaped
        self._reaped = now
        for _ in range(min(len(self._requests), math.ceil(passed_s * _ASKED_A_SECOND))):
            request = next(iter(self._requests))
            self._requests.move_to_end(request)
            request.reply.ask_if_cancelled()

    def _give_up(self, request: _Waiting) -> None:
        self.cancelled += 1
        del self._requests[request]
        for request_id in request.order:
            if self._by_request.pop(request_id, None) is not None:
                self._engine.abort_request(request_id)
        request.reply.drop()

    def close(self, refusal: Refusal) -> None:
        """Ends every request; whoever waits gets `refusal`."""
        for request_id in self._by_request:
            self._engine.abort_request(request_id)
        waiting = list(self._requests)
        self._by_request.clear()
        self._requests.clear()
        for request in waiting:
            request.reply.refuse(refusal)
