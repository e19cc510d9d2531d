"""The life of one stream on the client's side, without any input or output of its own."""

import contextlib
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from oasr_client import audio, errors, stitching, transport
from oasr_client.journal import Journal, quietest
from oasr_client.options import Parameter
from oasr_client.resume import Fate, Resume, delay_s, fate_of, is_failure, took_nothing
from oasr_client.steps import Outputs, Pause, Send, Steps, outputs_wanted, result_of
from oasr_client.told import Told

MAX_CORRELATION_ID = 2**63 - 1
FAREWELL_TIMEOUT_S = 5.0
"""Seconds to wait for the answer to the END of a stream that is left."""
# A server that gave no answer in time is not asked for long to let the stream go.
_LOST_FAREWELL_TIMEOUT_S = 1.0
# Audio is sent again in pieces of so much.
_PIECE_S = 2.0
# For the place of a replay alone, RESULT is asked for so often: it grows with the stream.
_LOOK_S = 2.0
# Audio at which the server itself fails is given up after so many times.
_MAX_FAILURES = 3
EMPTY = np.zeros(0, dtype=np.int16)
"""No audio."""


@dataclass(frozen=True)
class StreamResponse:
    """The answer to one chunk.

    Attributes:
        text: everything recognised in the stream so far.
        is_final: the answer to the end of the stream; the text changes no more.
        result: the parsed RESULT document, None unless it was asked for.
        latency_s: seconds from sending the chunk to its answer.
        resumes: how often the stream has been resumed so far.
    """

    text: str
    is_final: bool
    result: dict[str, Any] | None
    latency_s: float
    resumes: int = 0


@dataclass
class Contact:
    """Whether a server has answered a client, and was not waited for in vain since; shared by the client's streams."""

    met: bool = False


@dataclass(frozen=True)
class StreamSpec:
    """What a stream is to be, resolved once.

    Attributes:
        model: name of the streaming model.
        encoding: "pcm" or "float".
        parameters: options as request parameters.
        want_result: RESULT with every answer.
        resume: how a lost stream is resumed; None: it is not.
    """

    model: str
    encoding: str
    parameters: Mapping[str, Parameter]
    want_result: bool
    resume: Resume | None

    @property
    def sample_rate(self) -> int:
        """Samples per second of what is sent."""
        rate = self.parameters.get("sample_rate", audio.SAMPLE_RATE)
        return rate if isinstance(rate, int) and rate > 0 else audio.SAMPLE_RATE

    @property
    def may_end_segments(self) -> bool:
        """Whether segments may become final before the END; the server's own default is not known here."""
        return self.parameters.get("endpointing") is not False


@dataclass
class _Trial:
    """The attempts at one request; `begin` is when the first one failed."""

    begin: float | None = None
    attempts: int = 0
    failures: int = 0


@dataclass
class StreamSession:
    """One stream. `position` is how much of the audio that was taken the present sequence has."""

    spec: StreamSpec
    contact: Contact
    correlation_id: transport.CorrelationId
    resumes: int = 0
    rng: random.Random = field(default_factory=random.Random)
    clock: Callable[[], float] = time.perf_counter

    def __post_init__(self) -> None:
        # known: the server may hold the stream; started: its START was taken; ended: its END was.
        self._known = False
        self._started = False
        self._ended = False
        self._before = stitching.Before()
        self._anchor = stitching.Anchor()
        self._told = Told()
        self._asked_at = 0
        policy = self.spec.resume
        self._journal = Journal(round(policy.max_replay_seconds * self._rate)) if policy else None
        # None: the stream is lost and a new sequence must take its place.
        self._position: int | None = 0

    def request(self, chunk: npt.NDArray[Any], end: bool) -> Steps[StreamResponse]:
        """A chunk, or the END with or without one; raises as `Stream.send` says."""
        if self._ended:
            raise errors.InvalidRequest("this stream has ended: open a new one for more audio")
        samples = audio.to_pcm(chunk) if self.spec.encoding == "pcm" else audio.to_float(chunk)
        begin = self.clock()
        if self._journal is None:
            outputs = yield from self._attempt(samples, end, self.spec.want_result)
        else:
            outputs = yield from self._resumable(self._journal, samples, end)
        self._ended = end
        text, result = self._heard(outputs, end)
        if result is not None:
            result = self._told.response(result)
        return StreamResponse(text, end, result if self.spec.want_result else None, self.clock() - begin, self.resumes)

    def farewell(self) -> Steps[None]:
        """Ends a stream that is left without its END: the server would keep it until it expires."""
        if not self._known or self._ended:
            return
        self._ended = True
        yield from self._let_go(FAREWELL_TIMEOUT_S)

    @property
    def _rate(self) -> int:
        return self.spec.sample_rate

    def _resumable(self, journal: Journal, samples: npt.NDArray[Any], end: bool) -> Steps[Outputs]:
        trial = _Trial()
        while True:
            closes = False
            try:
                yield from self._catch_up(journal)
                closes = end and self._started
                outputs = yield from self._attempt(samples, end, self._wants_result(journal.end + samples.size, end))
            except errors.OasrError as error:
                yield Pause(self._after(error, closes, trial))
                continue
            except GeneratorExit:
                # Nobody waits for the answer, which may have been on its way.
                self._position = None
                raise
            journal.append(samples)
            self._position = journal.end
            return outputs

    def _after(self, error: errors.OasrError, closes: bool, trial: _Trial) -> float:
        """Seconds to wait before another attempt; raises where there is to be none.

        `closes`: the request was the END of a sequence that was open.
        """
        assert self.spec.resume is not None
        has_audio = self._journal is not None and self._journal.end > 0
        fate = fate_of(error, closes=closes, met=has_audio or self.contact.met)
        if fate is Fate.REOPEN or closes or not took_nothing(error):
            self._position = None
            if isinstance(error, errors.ServerUnreachable):
                # It holds no stream that could be ended.
                self._known = False
        if fate is Fate.RAISE:
            raise error
        if trial.begin is None:
            trial.begin = self.clock()
        trial.attempts += 1
        trial.failures += is_failure(error)
        pause_s = delay_s(trial.attempts, error, self.rng)
        spent_s = self.clock() - trial.begin + pause_s
        if trial.failures >= _MAX_FAILURES or spent_s > self.spec.resume.resume_seconds:
            if isinstance(error, errors.ServerUnreachable):
                # Streams that have sent nothing yet need not wait for it as long again.
                self.contact.met = False
            raise errors.ResumeFailed(
                f"the stream could not be resumed within {spent_s - pause_s:.1f} s: {error}",
                code=error.code,
                status=error.status,
            ) from error
        return pause_s

    def _catch_up(self, journal: Journal) -> Steps[None]:
        """Brings the server to where the stream is: after a loss, in a new sequence."""
        if self._position is None:
            if self._known:
                # Nobody would end the sequence that is given up.
                yield from self._let_go(_LOST_FAREWELL_TIMEOUT_S)
            self._begin_anew(journal)
        assert self._position is not None
        while self._position < journal.end:
            piece = journal.read(self._position, min(journal.end, self._position + round(_PIECE_S * self._rate)))
            outputs = yield from self._attempt(piece, False, self._wants_result(self._position + piece.size, False))
            self._position += piece.size
            self._heard(outputs, False)

    def _begin_anew(self, journal: Journal) -> None:
        low, high = round(self._anchor.low * self._rate), round(self._anchor.high * self._rate)
        low, high = min(low, journal.end), min(high, journal.end)
        if low < journal.first:
            assert self.spec.resume is not None
            raise errors.ResumeFailed(
                f"the stream was lost after {journal.end / self._rate:.1f} s and cannot be resumed: more than "
                f"{self.spec.resume.max_replay_seconds:g} s of it were not final; set endpointing, or allow a longer "
                "max_replay_seconds"
            )
        place = quietest(journal.read, low, high, journal.end, self._rate)
        self._before = stitching.Before(self._anchor.segments, place / self._rate)
        self._position = place
        self._asked_at = 0
        self._told.begin_replay()
        self.correlation_id = new_correlation_id()
        self._known = self._started = False
        self.resumes += journal.end > 0

    def _attempt(self, samples: npt.NDArray[Any], end: bool, want_result: bool) -> Steps[Outputs]:
        """Sends one request, and keeps account of what the server knows of the stream."""
        step = transport.SequenceStep(self.correlation_id, start=not self._started, end=end)
        is_last = end and self._journal is None
        self._known = True
        try:
            outputs = yield self._send(samples, step, want_result)
        except errors.UnknownSequence:
            self._known = self._started = False
            self._ended = is_last
            raise
        except (errors.ServerTimeout, errors.RequestCancelled, GeneratorExit):
            # The server may have taken the audio: a second START would silently throw it away.
            self._started = True
            raise
        except errors.ServerUnreachable:
            raise
        except errors.OasrError:
            # A refusal shows that the request arrived, and an END that arrived closes the sequence.
            self._ended = is_last
            raise
        self._started = True
        self.contact.met = True
        assert outputs is not None
        return outputs

    def _let_go(self, timeout_s: float) -> Steps[None]:
        with contextlib.suppress(errors.OasrError):
            yield self._send(EMPTY, transport.SequenceStep(self.correlation_id, end=True), False, timeout_s)

    def _send(
        self, samples: npt.NDArray[Any], step: transport.SequenceStep, want_result: bool, timeout_s: float | None = None
    ) -> Send:
        name = "PCM" if samples.dtype == np.int16 else "WAV"
        return Send(
            self.spec.model,
            {name: transport.batch_of_one(samples)},
            outputs_wanted(want_result),
            step=step,
            parameters=self.spec.parameters if step.start else None,
            timeout_s=timeout_s,
        )

    def _wants_result(self, taken: int, end: bool) -> bool:
        if self.spec.want_result:
            return True
        if end or not self.spec.may_end_segments:
            return False
        return taken - self._asked_at >= _LOOK_S * self._rate

    def _heard(self, outputs: Outputs, end: bool) -> tuple[str, dict[str, Any] | None]:
        """Text and RESULT of the whole stream; moves the place on from which a replay would begin."""
        text = stitching.join_texts([self._before.text, transport.text_of(outputs)])
        result = result_of(outputs)
        if result is None:
            return text, None
        result = stitching.stitched(result, self._before)
        self._told.hear(result)
        if self._journal is not None and not end:
            self._move_anchor(self._journal, result)
        return text, result

    def _move_anchor(self, journal: Journal, result: Mapping[str, Any]) -> None:
        assert self.spec.resume is not None and self._position is not None
        self._asked_at = self._position
        anchor = stitching.anchor_of(
            result,
            self._position / self._rate,
            self.spec.resume.max_replay_seconds,
            endpointing=self.spec.parameters.get("endpointing") is True,
            partials=self.spec.parameters.get("partials") is not False,
        )
        if anchor is not None and anchor.low > self._anchor.low:
            self._anchor = anchor
            journal.forget_before(round(anchor.low * self._rate))


def new_correlation_id() -> int:
    """A random id that every protocol carries: 1 to 2^63-1."""
    return random.SystemRandom().randint(1, MAX_CORRELATION_ID)
