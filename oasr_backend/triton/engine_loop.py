"""The one thread that touches the engine, and what it takes in and gives out."""

import logging
import queue
import threading
import time
from collections.abc import Iterable
from typing import Any, Protocol

from oasr_backend.engine.request import RequestOutput
from oasr_backend.triton.errors import Refusal, engine_died, internal_error, shutting_down

log = logging.getLogger(__name__)

_IDLE_WAIT_S = 0.5
# A step waits for others for at most this share of what a step takes: widening it pays more than that.
_GATHER_SHARE = 0.25


class Desk(Protocol):
    """Where requests wait for their outputs."""

    def arrive(self, item: Any, now: float) -> None: ...

    def deliver(self, outputs: Iterable[RequestOutput], now: float) -> None: ...

    @property
    def expects_more(self) -> bool:
        """Whether waiting a moment may widen the next step: somebody who could have asked has not."""

    def reap(self, now: float) -> None: ...

    def close(self, refusal: Refusal) -> None: ...


class SteppingEngine(Protocol):
    @property
    def has_work(self) -> bool: ...

    @property
    def seconds_held(self) -> float:
        """Time until requests that wait for more to come go as they are; infinite when none do."""

    def step(self) -> list[RequestOutput]: ...


class EngineLoop:
    """Takes arrivals in order, steps the engine while it has work, delivers what comes out.

    `submit` may be called from any thread at any time; every item it takes is answered, even after the thread died.
    """

    def __init__(self, engine: SteppingEngine, desk: Desk, max_gather_s: float, on_tick: "TickHook"):
        self._engine = engine
        self._desk = desk
        self._max_gather_s = max_gather_s
        self._step_s = 0.0
        self._on_tick = on_tick
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._ended = False
        # After a death the watchdog and a stop may both get here.
        self._refusing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="oasr-engine", daemon=True)
        self._next_reap = 0.0

    def start(self) -> None:
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def submit(self, item: Any) -> None:
        self._inbox.put(item)
        if self._ended:
            self.refuse_all(shutting_down())

    def stop(self) -> None:
        """Ends the thread after the step it is in; whoever still waits is answered."""
        self._stopping.set()
        self._inbox.put(None)
        # Without a limit: the desk belongs to the thread while it lives, and the launcher kills a step without end.
        self._thread.join()
        self._ended = True
        self.refuse_all(shutting_down())

    def refuse_all(self, refusal: Refusal) -> None:
        """Answers all that wait and all that has arrived. Only for when the thread has ended."""
        with self._refusing:
            while True:
                try:
                    item = self._inbox.get_nowait()
                except queue.Empty:
                    break
                if item is not None:
                    item.reply.refuse(refusal)
            self._desk.close(refusal)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._turn()
        except BaseException:
            # The watchdog sees the thread end and acts.
            log.critical("the engine thread died", exc_info=True)

    def _turn(self) -> None:
        self._take_arrivals()
        now = time.monotonic()
        if self._engine.has_work:
            outputs = self._engine.step()
            self._step_s = time.monotonic() - now
            self._desk.deliver(outputs, time.monotonic())
        if now >= self._next_reap:
            self._next_reap = now + _IDLE_WAIT_S
            self._desk.reap(now)
        self._on_tick(now)

    def _take_arrivals(self) -> None:
        """Blocks while the engine has nothing to do; else waits no longer than pays for those who come together."""
        if self._inbox.empty() and not self._engine.has_work:
            try:
                self._arrive(self._inbox.get(timeout=min(_IDLE_WAIT_S, self._engine.seconds_held)))
            except queue.Empty:
                return
        deadline = time.monotonic() + min(self._max_gather_s, _GATHER_SHARE * self._step_s)
        while True:
            try:
                wait = deadline - time.monotonic()
                if wait > 0 and self._desk.expects_more:
                    self._arrive(self._inbox.get(timeout=wait))
                else:
                    self._arrive(self._inbox.get_nowait())
            except queue.Empty:
                return

    def _arrive(self, item: Any) -> None:
        if item is None:
            return
        try:
            self._desk.arrive(item, time.monotonic())
        except Exception:
            log.exception("a request could not be taken in")
            item.reply.refuse(internal_error())
        except BaseException:
            item.reply.refuse(engine_died())
            raise


class TickHook(Protocol):
    """Called after every turn on the engine thread."""

    def __call__(self, now: float) -> None: ...


class Watchdog:
    """Answers everybody and calls `on_death` once the engine thread has died without being asked to."""

    def __init__(self, loop: EngineLoop, on_death: "DeathHook", interval_s: float = 0.2):
        self._loop = loop
        self._on_death = on_death
        self._interval_s = interval_s
        self._thread = threading.Thread(target=self._run, name="oasr-watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while self._loop.is_alive:
            time.sleep(self._interval_s)
        if self._loop.is_stopping:
            return
        self._loop.refuse_all(engine_died())
        threading.Thread(target=self._on_death, name="oasr-death", daemon=True).start()
        # Requests go on arriving until the server has ended. They had no part in its death, and may be told apart: who
        # was there at three deaths in a row may be the cause of them, and is not sent again by our client.
        while not self._loop.is_stopping:
            self._loop.refuse_all(shutting_down())
            time.sleep(self._interval_s)


class DeathHook(Protocol):
    def __call__(self) -> None: ...
