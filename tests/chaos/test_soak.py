"""Ten thousand sequences, a third of which go wrong."""

import random
import threading
import time
from collections import Counter

import pytest

from oasr_backend.serve import RunningServer
from tests.chaos.aftermath import assert_serves, processes_of, seconds_until_back, urls_of
from tests.chaos.ledger import Finding, Ledger
from tests.chaos.misdeeds import chosen, reconnected
from tests.chaos.neighbours import Neighbours
from tests.chaos.watcher import Watcher
from tests.server.support import PROTOCOLS, Wire, together

CLIENTS = 16
LIMIT_S = 480.0
"""After which a slow machine begins no more sequences."""
WARM_UP = 0.25
SHARE, AMOUNT = 0.03, 4.0
"""What may rise over the run, of the mean or in MiB or pieces, and be no leak: pools fill up slowly."""


class Crowd:
    """Clients that take one sequence after the other."""

    def __init__(self, server: RunningServer, seed: int, amount: int) -> None:
        self._server = server
        self._seed = seed
        self._amount = amount
        self._lock = threading.Lock()
        self._next = 0
        self._deadline = time.monotonic() + LIMIT_S
        self.counts: Counter[str] = Counter()

    def done(self) -> int:
        return sum(self.counts.values())

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
                    wire = reconnected(wire, lambda protocol: Wire(self._server, protocol))
        finally:
            wire.client.close()

    def _turn(self) -> int | None:
        with self._lock:
            if self._next >= self._amount or time.monotonic() > self._deadline:
                return None
            self._next += 1
            return self._next


@pytest.mark.timeout(900)
def test_ten_thousand_sequences(server: RunningServer, seed: int, ledger: Ledger, pytestconfig: pytest.Config) -> None:
    processes = processes_of(server)
    crowd = Crowd(server, seed, pytestconfig.getoption("chaos_sequences"))
    began = time.monotonic()
    with Neighbours(urls_of(server), seed) as neighbours, Watcher(server, crowd.done) as watcher:
        together(crowd.work, range(CLIENTS), LIMIT_S + 120)
    took = time.monotonic() - began
    back_s = seconds_until_back(server)
    assert_serves(server)
    assert processes_of(server) == processes
    told = ", ".join(f"{count} {name}" for name, count in sorted(crowd.counts.items()))
    ledger.add(
        Finding(
            "sequences, some of them abandoned, cancelled or malformed",
            f"{crowd.done()} in {took:.0f} s",
            neighbours.texts,
            neighbours.longest_s,
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
