"""What a request asks the server about its client, and when."""

from dataclasses import dataclass

from oasr_backend.triton.cancellation import Cancellation


@dataclass
class Server:
    """Counts how often it is asked; forgets a request that is answered."""

    cancelled: bool = False
    answered: bool = False
    asked: int = 0
    now: float = 100.0

    def is_cancelled(self) -> bool:
        assert not self.answered
        self.asked += 1
        return self.cancelled

    def clock(self) -> float:
        return self.now


def test_a_request_that_is_answered_soon_is_not_asked_about() -> None:
    server = Server(cancelled=True)
    cancellation = Cancellation(server.is_cancelled, server.clock)
    server.now += 0.05
    assert not cancellation.is_due
    cancellation.ask()
    cancellation.close()
    assert server.asked == 0
    assert not cancellation.seen


def test_a_request_that_waits_is_asked_about_until_it_is_known_to_be_cancelled() -> None:
    server = Server()
    cancellation = Cancellation(server.is_cancelled, server.clock)
    for _ in range(3):
        server.now += 1
        assert cancellation.is_due
        cancellation.ask()
        assert not cancellation.seen
    server.cancelled = True
    cancellation.ask()
    assert cancellation.seen
    assert not cancellation.is_due
    cancellation.ask()
    assert server.asked == 4


def test_it_is_asked_once_more_before_the_answer_and_never_behind_it() -> None:
    server = Server(cancelled=True)
    cancellation = Cancellation(server.is_cancelled, server.clock)
    server.now += 1
    cancellation.close()
    assert cancellation.seen
    server.answered = True
    cancellation.ask()
    assert server.asked == 1
