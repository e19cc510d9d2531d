"""Ten thousand sequences, a third of which go wrong."""

import random
import threading
import time
from collections import Counter

import pytest

from oasr_backend.serve import RunningServer
from tests.chaos.aftermath import assert_serves, processes_of, seconds_until_back, urls_of
from tests.chaos.ledger import Finding, Ledger
from tests.chaos.misdeeds import chosen
from tests.chaos.neighbours import Neighbours
from tests.chaos.watcher import IN_USE, Watcher, holdings
from tests.server.support import PROTOCOLS, Wire, together

CLIENTS = 16
LIMIT_S = 480.0
"""After which a slow machine begins no more sequences."""
ROUNDS = 5
"""Behind each of which the server comes to rest."""
WARM_UP = 0.25
SHARE, AMOUNT = 0.03, 4.0
"""What may rise over the run, of the mean or in MiB or pieces, and be no leak: pools fill up slowly."""


class Crowd:
    """Clients that take one sequence after the other."""

    def __init__(self, server: RunningServer, seed: int) -> None:
        self._server = server
        self._seed = seed
        self._lock = threading.Lock()
        self._next = self._end = 0
        self._deadline = time.monotonic() + LIMIT_S
        self.counts: Counter[str] = Counter()

    def done(self) -> int:
        return sum(self.counts.values())

    def play(self, amount: int) -> None:
        """Goes on with so many sequences, and returns when they have ended."""
        self._end = self._next + amount
        together(self.work, range(CLIENTS), LIMIT_S + 120)

    def work(self, number: int) -> None:
        """The life of one client."""
        wire = Wire(self._server, PROTOCOLS[number % 2])
        try:
            while (turn := self._turn()) is not None:
                rng = random.Random(f"{self._seed} {turn}")
                deed = chosen(rng)
                deed(wire, rng)
                with self._lock:
                    self.counts[deed.__name__] += 1
                if rng.random() < 0.05:
                    wire.client.close()
                    wire = Wire(self._server, wire.protocol)
        finally:
            wire.client.close()

    def _turn(self) -> int | None:
        with self._lock:
            if self._next >= self._end or time.monotonic() > self._deadline:
                return None
            self._next += 1
            return self._next


@pytest.mark.timeout(900)
def test_ten_thousand_sequences(server: RunningServer, seed: int, ledger: Ledger, pytestconfig: pytest.Config) -> None:
    processes = processes_of(server)
    amount = pytestconfig.getoption("chaos_sequences") // ROUNDS
    crowd = Crowd(server, seed)
    took_s, texts, longest_s, back_s = 0.0, 0, 0.0, 0.0
    with Watcher(server, crowd.done) as watcher:
        for number in range(ROUNDS):
            began = time.monotonic()
            with Neighbours(urls_of(server), seed + number) as neighbours:
                crowd.play(amount)
            took_s += time.monotonic() - began
            texts += neighbours.texts
            longest_s = max(longest_s, neighbours.longest_s)
            # Not one page and not one slot is missing at rest.
            back_s = max(back_s, seconds_until_back(server))
            assert {holdings(server)[name] for name in IN_USE} == {0}
    assert_serves(server)
    assert processes_of(server) == processes
    told = ", ".join(f"{count} {name}" for name, count in sorted(crowd.counts.items()))
    ledger.add(
        Finding(
            "sequences, some of them abandoned, cancelled or malformed",
            f"{crowd.done()} in {took_s:.0f} s",
            texts,
            longest_s,
            back_s,
            told,
        )
    )
    ledger.series = watcher.series
    trends = watcher.trends(seed, WARM_UP)
    for name, found in trends.items():
        ledger.slopes.append(
            {
                "watched": name,
                "mean": f"{found.mean:.1f}",
                "slope for 1,000 sequences": f"{found.slope:+.3f}",
                "95 % interval": f"{found.low:+.3f} to {found.high:+.3f}",
                "rise over the run": f"{found.rise:+.2f}",
            }
        )
    leaks = {name: found for name, found in trends.items() if not found.is_flat(SHARE, AMOUNT)}
    assert not leaks, leaks
