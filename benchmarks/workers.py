"""Processes that stay and take turns, so that arms of a comparison share no threads."""

import multiprocessing
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any


class Worker:
    """A process that holds an object and calls its methods when asked; asleep in between."""

    def __init__(self, make: Callable[..., Any], *arguments: Any):
        """`make(*arguments)` is called in the process; both must be picklable."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, make, arguments), daemon=True)
        self._process.start()
        theirs.close()
        self.answer()

    def ask(self, method: str, *arguments: Any) -> None:
        self._pipe.send((method, arguments))

    def answer(self) -> Any:
        """The answer to the last question. Raises RuntimeError with the process' own traceback."""
        is_good, value = self._pipe.recv()
        if not is_good:
            raise RuntimeError(f"a worker failed:\n{value}")
        return value

    def call(self, method: str, *arguments: Any) -> Any:
        self.ask(method, *arguments)
        return self.answer()

    def close(self) -> None:
        self._pipe.close()
        self._process.join()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def all_at_once(workers: Sequence[Worker], method: str, *arguments: Any) -> list[Any]:
    """Asks all before it waits for any."""
    for worker in workers:
        worker.ask(method, *arguments)
    return [worker.answer() for worker in workers]


def _serve(pipe: Connection, make: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        held = make(*arguments)
        pipe.send((True, None))
        while True:
            method, given = pipe.recv()
            pipe.send((True, getattr(held, method)(*given)))
    except EOFError:
        pass
    except BaseException:
        pipe.send((False, traceback.format_exc()))
