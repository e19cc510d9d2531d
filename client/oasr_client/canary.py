"""Health by inference: small requests that show that the models answer and that the server behaves as they need."""

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from oasr_client import offline, session, streaming, transport
from oasr_client.credentials import ANONYMOUS, Credentials
from oasr_client.errors import InvalidRequest, OasrError, ServerTimeout

MODELS = (streaming.MODEL, offline.SAMPLES_MODEL)
UNKNOWN_OPTION = "canary_unknown_option"
_FULL = "SERVER_FULL"
_CHUNK = np.zeros((1, 1600), dtype=np.int16)
_CLIP = np.zeros((1, 8000), dtype=np.int16)
_NOTHING = np.zeros((1, 0), dtype=np.int16)


@dataclass(frozen=True)
class CanaryReport:
    """What the canary found.

    Attributes:
        ok: every check passed.
        checks: names of the checks that passed, in order.
        detail: one sentence on the first check that failed, "" when none did.
        elapsed_s: seconds taken.
        url: HOST:PORT that was asked.
        full: the server refused for having no room, at once, as it should: full is not sick, and a probe that said
            so would end the streams that fill it.
    """

    ok: bool
    checks: tuple[str, ...]
    detail: str
    elapsed_s: float
    url: str
    full: bool = False

    @property
    def line(self) -> str:
        """The report as one line."""
        if self.ok:
            full = ", the server is full" if self.full else ""
            return f"ok {self.url}: {len(self.checks)} checks in {self.elapsed_s * 1000:.0f} ms{full}"
        return self.detail


def check(
    url: str | None = None,
    protocol: str = "grpc",
    timeout_s: float = 10.0,
    *,
    models: Sequence[str] = MODELS,
    credentials: Credentials = ANONYMOUS,
) -> CanaryReport:
    """Asks the server for real, with silence; never raises for a fault of the server.

    Args:
        url: HOST:PORT, default that of the protocol.
        protocol: "grpc" or "http".
        timeout_s: seconds for all checks together.
        models: the models to ask, a part of `MODELS`.
        credentials: token and TLS.
    Raises:
        ValueError: an unknown protocol or model, or a malformed url.
    """
    unknown = set(models) - set(MODELS)
    if unknown:
        raise ValueError(f"no canary for {', '.join(sorted(unknown))}: it knows {', '.join(MODELS)}")
    with transport.connect(url, protocol, timeout_s, credentials=credentials) as via:
        return run(via, timeout_s, models)


def run(via: transport.Transport, timeout_s: float, models: Sequence[str] = MODELS) -> CanaryReport:
    """The checks of `check` over a given transport."""
    begin = time.monotonic()
    asker = _Asker(via, begin + timeout_s)
    plan: list[tuple[str, Callable[[], None]]] = []
    if streaming.MODEL in models:
        plan += [
            ("sequence", lambda: asker.sequence(session.new_correlation_id())),
            ("sequence with a string id", lambda: asker.sequence(f"canary-{uuid.uuid4()}")),
            ("options reach the model", asker.refused_option),
        ]
    if offline.SAMPLES_MODEL in models:
        plan.append(("offline clip", asker.clip))
    passed: list[str] = []
    detail = ""
    full = False
    for name, probe in plan:
        try:
            probe()
        except OasrError as error:
            if error.code == _FULL:
                full = True
                continue
            detail = f"{name} failed: {error}"
            break
        passed.append(name)
    return CanaryReport(not detail, tuple(passed), detail, time.monotonic() - begin, via.url, full)


class _Asker:
    def __init__(self, via: transport.Transport, deadline: float) -> None:
        self._via = via
        self._deadline = deadline

    def sequence(self, correlation_id: transport.CorrelationId) -> None:
        steps = (
            (_CHUNK, transport.SequenceStep(correlation_id, start=True)),
            (_CHUNK, transport.SequenceStep(correlation_id)),
            (_NOTHING, transport.SequenceStep(correlation_id, end=True)),
        )
        done = 0
        try:
            for samples, step in steps:
                self._ask(streaming.MODEL, samples, step)
                done += 1
        except OasrError:
            if done < len(steps) - 1:
                self._give_back(correlation_id)
            raise

    def refused_option(self) -> None:
        step = transport.SequenceStep(session.new_correlation_id(), start=True, end=True)
        try:
            self._ask(streaming.MODEL, _CHUNK, step, {UNKNOWN_OPTION: 1})
        except InvalidRequest as error:
            if UNKNOWN_OPTION in str(error):
                return
            raise OasrError(f"an unknown option was refused without naming it: {error}") from error
        raise OasrError("an unknown option was accepted: request parameters do not reach the model")

    def clip(self) -> None:
        self._ask(offline.SAMPLES_MODEL, _CLIP, None)

    def _ask(
        self,
        model: str,
        samples: transport.Array,
        step: transport.SequenceStep | None,
        parameters: dict[str, int] | None = None,
    ) -> None:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise ServerTimeout("the time for all checks is used up: the server is overloaded or stuck")
        outputs = self._via.infer(
            model, {"PCM": samples}, ["TRANSCRIPTS"], sequence=step, parameters=parameters, timeout_s=left_s
        )
        shape = outputs["TRANSCRIPTS"].shape
        if shape != (1,):
            raise OasrError(f"{model} answered TRANSCRIPTS of shape {list(shape)} where clients need [1]")

    def _give_back(self, correlation_id: transport.CorrelationId) -> None:
        try:
            self._via.infer(
                streaming.MODEL,
                {"PCM": _NOTHING},
                ["TRANSCRIPTS"],
                sequence=transport.SequenceStep(correlation_id, end=True),
                timeout_s=1.0,
            )
        except OasrError:
            return
