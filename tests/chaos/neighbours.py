"""Clients that do nothing wrong, beside whatever goes wrong: their texts must stay right and none may wait for ever."""

import random
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType

from oasr_client import OfflineClient, Resume, StreamingClient
from oasr_client.errors import OasrError, ServerUnavailable
from tests.server.support import CLIPS, PROTOCOLS, clip, clip_path, cut, references

DEADLINE_S = 60.0
"""For one request of a server that is there."""
RESUME_S = 120.0
"""For which a lost server is waited for, by those who are patient."""


@dataclass
class Account:
    """What one neighbour has seen."""

    protocol: str
    rng: random.Random
    texts: int = 0
    full: int = 0
    """Times that a new stream or clip was turned away because the server was full."""
    resumes: int = 0
    longest_s: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def timed(self, began: float) -> None:
        self.longest_s = max(self.longest_s, time.monotonic() - began)

    def check(self, text: str, expected: str) -> None:
        self.texts += 1
        if text != expected:
            self.wrong.append(f"{text!r} instead of {expected!r}")


class Neighbours:
    """Four streams and a clip at a time, over both protocols, for as long as the `with` block lasts.

    At its end every one has finished what it was at, and had at least one text begun and ended behind the last
    `mark()`; all were right.

    Args:
        urls: HOST:PORT of each protocol.
        seed: of what they say, and in how large pieces.
        patient: their streams resume on a server that was lost and comes back.
    """

    def __init__(self, urls: dict[str, str], seed: int, *, patient: bool = False) -> None:
        self._urls = urls
        self._patient = patient
        self._stopped = threading.Event()
        self._marks = 0
        self.accounts = [Account(PROTOCOLS[number % 2], random.Random(f"{seed} {number}")) for number in range(5)]
        self._marked = [0] * len(self.accounts)
        self._pool = ThreadPoolExecutor(len(self.accounts), "neighbour")
        self._runs: list[Future[None]] = []

    def __enter__(self) -> "Neighbours":
        self._runs = [
            self._pool.submit(self._transcribe if number == 4 else self._stream, account)
            for number, account in enumerate(self.accounts)
        ]
        self.mark()
        self.wait_for_a_round()
        self.mark()
        return self

    def mark(self) -> None:
        """From now on each has a text to begin and to end."""
        self._marked = [account.texts for account in self.accounts]

    def wait_for_a_round(self, timeout_s: float = 2 * RESUME_S) -> None:
        """Until each has ended two texts behind the last mark, of which the second was begun behind it."""
        deadline = time.monotonic() + timeout_s
        while any(account.texts < begin + 2 for account, begin in zip(self.accounts, self._marked)):
            for run in self._runs:
                if run.done():
                    run.result()
            assert time.monotonic() < deadline, "a neighbour has hung"
            time.sleep(0.05)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.wait_for_a_round()
        finally:
            self._stopped.set()
            self._pool.shutdown()
        for run in self._runs:
            run.result()
        wrong = [line for account in self.accounts for line in account.wrong]
        assert wrong == []

    @property
    def texts(self) -> int:
        """Texts that were compared, all of them right."""
        return sum(account.texts for account in self.accounts)

    @property
    def longest_s(self) -> float:
        """The longest that one of their requests took."""
        return max(account.longest_s for account in self.accounts)

    def _stream(self, account: Account) -> None:
        url = self._urls[account.protocol]
        resume = Resume(resume_seconds=RESUME_S) if self._patient else False
        timeout_s = RESUME_S if self._patient else DEADLINE_S
        with StreamingClient(url, account.protocol, timeout_s) as client:
            while not self._stopped.is_set():
                name = account.rng.choice(CLIPS)
                pieces = cut(clip(name), *(account.rng.randrange(1600, 16000) for _ in range(5)))
                try:
                    with client.stream(resume=resume) as stream:
                        for number, piece in enumerate(pieces):
                            began = time.monotonic()
                            answer = stream.finish(piece) if number == len(pieces) - 1 else stream.send(piece)
                            account.timed(began)
                            self._stopped.wait(account.rng.uniform(0.0, 0.05))
                        account.resumes += stream.resumes
                except ServerUnavailable as error:
                    if error.code != "SERVER_FULL":
                        raise
                    account.full += 1
                    self._stopped.wait(0.2)
                    continue
                account.check(answer.text, references()[name])

    def _transcribe(self, account: Account) -> None:
        with OfflineClient(self._urls[account.protocol], account.protocol, DEADLINE_S) as client:
            while not self._stopped.is_set():
                name = account.rng.choice(CLIPS)
                began = time.monotonic()
                try:
                    text = client.transcribe_file(clip_path(name)).text
                except OasrError:
                    # A lost server loses clips, which are sent again.
                    if not self._patient:
                        raise
                    self._stopped.wait(0.5)
                    continue
                account.timed(began)
                account.check(text, references()[name])
                self._stopped.wait(account.rng.uniform(0.0, 0.2))
