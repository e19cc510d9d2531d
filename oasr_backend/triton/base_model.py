"""What the streaming and the offline model share: engine, threads, replies, metrics, the end."""

import itertools
import json
import logging
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from oasr_backend.engine import ASREngine, EngineConfig, RequestOutput
from oasr_backend.errors import CheckpointError, ConfigError
from oasr_backend.triton.cancellation import Cancellation
from oasr_backend.triton.contract import check_backend, check_request
from oasr_backend.triton.engine_loop import Desk, EngineLoop, Watchdog
from oasr_backend.triton.errors import Refusal, internal_error
from oasr_backend.triton.exporter import DeskMetrics, MetricsExporter
from oasr_backend.triton.orphan import end_with_server
from oasr_backend.triton.request_meter import REFUSALS, RequestMeter
from oasr_backend.triton.results import result_json
from oasr_backend.triton.senders import SenderPool
from oasr_backend.triton.settings import ModelSettings, check_sample_rate, load_settings, version_settings
from oasr_backend.utils.lease import take_lease
from oasr_backend.utils.log_lines import configure_logging

log = logging.getLogger(__name__)

_turns = itertools.count()

# What the server gets to drain after the engine's death.
_DRAIN_S = 5.0


class Responder:
    """Sends a request's one response through the pool; a second one is dropped, as Triton could not bear it."""

    def __init__(self, request: Any, senders: SenderPool, meter: RequestMeter):
        self.received = time.monotonic()
        self._sender = request.get_response_sender()
        self._cancellation = Cancellation(self._sender.is_cancelled)
        self.wants_result = "RESULT" in request.requested_output_names()
        self._senders = senders
        self._meter = meter
        self._correlation_id = request.correlation_id()
        # Clips have no order to keep, so they take turns.
        self._key = hash(self._correlation_id) or next(_turns)
        self._used = False

    def send_outputs(
        self, outputs: Sequence[RequestOutput], is_final: bool, then: Callable[[], None] = lambda: None
    ) -> None:
        """`then` is called by a sender thread when the response was handed over."""
        self._queue(lambda: self._response(outputs, is_final), then)

    def refuse(self, refusal: Refusal) -> None:
        self._queue(lambda: self._refusal(refusal))

    def drop(self) -> None:
        """Ends a request that its client has taken back: the server wants a response, but nobody gets it."""
        error = pb_utils.TritonError("the client cancelled the request", pb_utils.TritonError.CANCELLED)
        self._queue(lambda: pb_utils.InferenceResponse(error=error))

    @property
    def is_cancelled(self) -> bool:
        """Whether the client is known to have taken the request back."""
        return self._cancellation.seen

    def ask_if_cancelled(self) -> None:
        """Has a sender thread ask the server about a request that waits; called by the thread that answers."""
        if not self._used and self._cancellation.is_due:
            self._senders.send(self._key, self._cancellation.ask)

    def _queue(self, make_response: Callable[[], Any], then: Callable[[], None] = lambda: None) -> None:
        if self._used:
            log.error("a second response to one request was dropped")
            return
        self._used = True

        def job() -> None:
            self._send(make_response)
            then()

        self._senders.send(self._key, job)

    def _response(self, outputs: Sequence[RequestOutput], is_final: bool) -> Any:
        tensors = [_strings("TRANSCRIPTS", [output.text for output in outputs])]
        if self.wants_result:
            tensors.append(_strings("RESULT", [result_json(output, is_final) for output in outputs]))
        return pb_utils.InferenceResponse(output_tensors=tensors)

    def _refusal(self, refusal: Refusal) -> Any:
        self._meter.refused(refusal, self._correlation_id)
        error = pb_utils.TritonError(str(refusal), getattr(pb_utils.TritonError, refusal.status))
        return pb_utils.InferenceResponse(error=error)

    def _send(self, make_response: Callable[[], Any]) -> None:
        try:
            response = make_response()
        except Exception:
            log.exception("a response could not be built")
            error = pb_utils.TritonError(str(internal_error()), pb_utils.TritonError.INTERNAL)
            response = pb_utils.InferenceResponse(error=error)
        self._cancellation.close()
        self._sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        # A stream remembers its last reply; nothing of the server's may live on with it.
        del self._sender


def _strings(name: str, texts: Sequence[str]) -> Any:
    return pb_utils.Tensor(name, np.array([text.encode() for text in texts], dtype=np.object_))


class EngineModel:
    """A Triton model around one engine. Subclasses say what waits for outputs and how a request is read."""

    scope = ""
    measures: tuple[str, ...] = ()
    """What is observed of its requests."""

    def initialize(self, args: dict[str, str]) -> None:
        """Loads the checkpoint, warms up and starts the threads; the model is ready when this returns."""
        check_backend(pb_utils)
        end_with_server()
        self._server = os.getppid()
        config = json.loads(args["model_config"])
        self._name = args["model_name"]
        try:
            settings = load_settings(
                {name: value["string_value"] for name, value in config.get("parameters", {}).items()},
                os.environ,
                self.scope,
                version_settings(Path(args["model_repository"]) / args["model_version"]),
            )
            configure_logging(settings.adapter, self._name)
            self._engine = ASREngine(_on_own_device(settings.engine, args))
            check_sample_rate(self._engine.sample_rate)
        except (CheckpointError, ConfigError) as error:
            # The message is for the operator; a traceback would only hide it.
            raise pb_utils.TritonModelException(f"{self._name}: {error}") from None
        self._settings = settings
        self._engine.warm_up()
        self._senders = SenderPool(settings.adapter.sender_threads)
        self._meter = RequestMeter(settings.adapter.log_text)
        self._desk = self._make_desk(settings)
        self._exporter = MetricsExporter(
            pb_utils,
            self._name,
            self._engine,
            self._meter,
            self._desk_metrics,
            (*self.measures, *REFUSALS),
            args["model_version"],
        )
        self._loop = EngineLoop(self._engine, self._desk, settings.adapter.gather_ms / 1000, self._exporter.tick)
        self._loop.start()
        Watchdog(self._loop, self._end_server).start()
        # Last: a model that does not load is told of by Triton.
        self._lease = take_lease(self._name)

    def _make_desk(self, settings: ModelSettings) -> Desk:
        raise NotImplementedError

    def _desk_metrics(self) -> DeskMetrics:
        raise NotImplementedError

    def _submit(self, request: Any, responder: "Responder") -> None:
        raise NotImplementedError

    def execute(self, requests: list[Any]) -> None:
        """Copies what the requests hold and returns at once; every one is answered through its sender."""
        for request in requests:
            responder: Responder | None = None
            try:
                responder = Responder(request, self._senders, self._meter)
                self._submit(request, responder)
            except Exception:
                # An exception out of here would fail the whole batch and show the client a traceback.
                log.exception("a request could not be read")
                if responder is not None:
                    responder.refuse(internal_error())

    def _end_server(self) -> None:
        """Ends the server, so that its supervisor starts it again: stubs are never restarted.

        It gets a moment to drain its other models, but not its whole exit timeout, which it would spend on sequences
        that nobody serves any more.
        """
        log.critical("ending the server, because its engine thread died")
        for wait_s, sign in ((0.5, signal.SIGTERM), (_DRAIN_S, signal.SIGKILL)):
            time.sleep(wait_s)
            # An orphan has another parent by now.
            if os.getppid() == self._server:
                os.kill(self._server, sign)

    def finalize(self) -> None:
        """Answers whoever waits, sends what is queued, frees the engine."""
        if self._lease:
            self._lease.give_back()
        self._loop.stop()
        self._senders.stop()
        self._engine.shutdown()


def parsed(parse: Callable[[], Any], fallback: Any) -> tuple[Any, Refusal | None]:
    """The parsed value, or `fallback` and why there is none."""
    try:
        return parse(), None
    except Refusal as refusal:
        return fallback, refusal


def _on_own_device(config: EngineConfig, args: dict[str, str]) -> EngineConfig:
    """An instance that Triton placed on a GPU stays there, unless the configuration names a device."""
    if args.get("model_instance_kind") != "GPU" or config.device != "auto":
        return config
    return replace(config, device=f"cuda:{args['model_instance_device_id']}")


__all__ = ["DeskMetrics", "EngineModel", "Responder", "check_request", "parsed"]
