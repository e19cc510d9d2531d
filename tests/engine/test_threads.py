"""Every call from any thread."""

import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from oasr_backend.engine import ASREngine, RequestOutput
from tests.engine.engines import assert_consistent, assert_idle, assert_same, every, make_engine, speech, stream

THREADS, ROUNDS = 8, 3
LENGTHS = (9000, 16000, 24000)
# Far more than anything here takes on a busy machine.
PATIENCE_S = 120.0


@pytest.fixture(autouse=True)
def many_switches() -> Iterator[None]:
    """Threads take turns fifty times as often as by default."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(usual)


def together(*work: Callable[[], object]) -> None:
    """Runs all from one starting line, each in a thread, and raises the first error."""
    line = threading.Barrier(len(work))
    errors: list[BaseException] = []

    def run(one: Callable[[], object]) -> None:
        try:
            line.wait(PATIENCE_S)
            one()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(one,), daemon=True) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"


@contextmanager
def stepping(engine: ASREngine, threads: int = 1) -> Iterator[list[RequestOutput]]:
    """Steps in the background until the block has ended and no work is left; all outputs."""
    outputs: list[RequestOutput] = []
    errors: list[BaseException] = []
    done = threading.Event()

    def step() -> None:
        try:
            while not done.is_set() or engine.has_work:
                outputs.extend(engine.step())
                done.wait(0.0005)
        except BaseException as error:
            errors.append(error)

    steppers = [threading.Thread(target=step, daemon=True) for _ in range(threads)]
    for thread in steppers:
        thread.start()
    try:
        yield outputs
    finally:
        done.set()
        for thread in steppers:
            thread.join(PATIENCE_S)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in steppers), "a stepping thread hangs"
    # What a blocking call left for others.
    outputs += engine.step()


def undisturbed(engine: ASREngine) -> dict[int, RequestOutput]:
    """The streamed output of each length, alone."""
    return {n: stream(engine, [speech(n)]) for n in LENGTHS}


def assert_ended_once(outputs: list[RequestOutput], expected: dict[str, RequestOutput]) -> None:
    """Each of `expected` has one final output, which is as expected, and nobody else has any."""
    ended = [output for output in outputs if output.finished]
    assert Counter(output.request_id for output in ended) == Counter(dict.fromkeys(expected, 1))
    for output in ended:
        assert_same(output, expected[output.request_id])


def converse(engine: ASREngine, name: str, length: int, rng: random.Random) -> None:
    """A whole stream, in pieces of random length."""
    engine.add_streaming_request(name)
    for piece in every(speech(length), rng.randint(800, 6000)):
        engine.feed_chunk(name, piece)
    engine.feed_chunk(name, [], is_last=True)


def test_feeders_aborters_and_readers_with_one_stepping_thread() -> None:
    engine = make_engine(max_batch_size=THREADS)
    streamed = undisturbed(engine)
    offline = {n: engine.transcribe_outputs([speech(n)], streaming=False)[0] for n in LENGTHS}
    expected: dict[str, RequestOutput] = {}
    aborted: set[str] = set()

    def client(number: int) -> None:
        rng = random.Random(number)
        for turn in range(ROUNDS):
            name, n = f"{number}-{turn}", rng.choice(LENGTHS)
            kind = rng.choice(["stream", "stream", "abort", "clip", "attached"])
            if kind in ("stream", "abort"):
                if kind == "abort":
                    aborted.add(name)
                else:
                    expected[name] = streamed[n]
                engine.add_streaming_request(name)
                pieces = every(speech(n), rng.randint(800, 6000))
                for piece in pieces[: len(pieces) // 2 if kind == "abort" else None]:
                    engine.feed_chunk(name, piece)
                    assert engine.num_running + engine.num_waiting >= 1
                if kind == "abort":
                    assert engine.abort_request(name)
                else:
                    engine.feed_chunk(name, [], is_last=True)
            else:
                expected[name] = (offline if kind == "clip" else streamed)[n]
                engine.add_request(speech(n), name, streaming=kind == "attached")
            engine.metrics_snapshot()
            assert engine.free_streams >= 0

    with stepping(engine) as outputs:
        together(*[partial(client, number) for number in range(THREADS)])
    assert_ended_once(outputs, expected)
    assert aborted and len(expected) > THREADS
    assert_idle(engine)


@pytest.mark.parametrize("places", [16, 5])
def test_sixteen_threads_open_streams_at_once(places: int) -> None:
    """With fewer places than streams, those that wait keep what they are fed."""
    engine = make_engine(max_batch_size=places)
    alone = undisturbed(engine)
    expected: dict[str, RequestOutput] = {}

    def client(number: int) -> None:
        rng = random.Random(number)
        for turn in range(2):
            name, length = f"{number}-{turn}", rng.choice(LENGTHS)
            expected[name] = alone[length]
            converse(engine, name, length, rng)

    with stepping(engine) as outputs:
        together(*[partial(client, number) for number in range(16)])
    assert len(expected) == 32
    assert_ended_once(outputs, expected)
    assert_idle(engine)


def test_one_of_many_threads_gets_an_id() -> None:
    engine = make_engine()
    winners: list[int] = []
    refusals: list[str] = []

    def client(number: int) -> None:
        try:
            engine.add_streaming_request("contested")
        except ValueError as error:
            refusals.append(str(error))
        else:
            winners.append(number)

    with stepping(engine) as outputs:
        together(*[partial(client, number) for number in range(16)])
        engine.feed_chunk("contested", speech(9000), is_last=True)
    assert len(winners) == 1 and len(refusals) == 15
    assert all("'contested' is in use" in refusal for refusal in refusals)
    assert_ended_once(outputs, {"contested": stream(engine, [speech(9000)])})
    assert_idle(engine)


class Pool:
    """Streams that several threads feed, each stream's pieces in order, and others abort and open again."""

    def __init__(self, engine: ASREngine, safe: int, mortal: int):
        self.engine = engine
        self.alone = undisturbed(engine)
        self.safe = [f"safe-{number}" for number in range(safe)]
        self.mortal = [f"mortal-{number}" for number in range(mortal)]
        self.lengths = {name: LENGTHS[index % len(LENGTHS)] for index, name in enumerate(self.safe)}
        self.opened: Counter[str] = Counter()
        self.aborted: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        # Written before the call that ends the stream: who is refused afterwards finds the name in it.
        self.doomed: set[str] = set()
        self._account = threading.Lock()
        self._turn = {name: threading.Lock() for name in self.safe}
        self._pieces = {name: every(speech(self.lengths[name]), 1700) for name in self.safe}
        for name in (*self.safe, *self.mortal):
            self.open(name)

    def count(self, counter: Counter[str], name: str) -> None:
        with self._account:
            counter[name] += 1

    def open(self, name: str) -> None:
        try:
            self.engine.add_streaming_request(name)
        except ValueError:
            return
        self.count(self.opened, name)

    def feed(self, name: str, samples: object, is_last: bool = False) -> None:
        """Only a stream that has been aborted or ended may refuse."""
        if is_last:
            self.doomed.add(name)
        try:
            self.engine.feed_chunk(name, samples, is_last)
        except (KeyError, RuntimeError) as error:
            if name not in self.doomed:
                raise AssertionError(f"{name} refused a piece but was never ended") from error
            self.count(self.refused, name)

    def feed_next(self, name: str) -> None:
        """The next piece of a safe stream; ends it after the last, and is refused after that."""
        with self._turn[name]:
            pieces = self._pieces[name]
            if pieces:
                self.feed(name, pieces.pop(0))
            else:
                self.feed(name, [], is_last=True)

    def abort(self, name: str) -> None:
        self.doomed.add(name)
        if self.engine.abort_request(name):
            self.count(self.aborted, name)


def test_feeders_race_aborters_on_shared_streams() -> None:
    engine = make_engine(max_batch_size=12)
    pool = Pool(engine, safe=6, mortal=8)

    def feeder(number: int) -> None:
        rng = random.Random(number)
        for _ in range(250):
            if rng.random() < 0.5:
                pool.feed_next(rng.choice(pool.safe))
            else:
                pool.feed(rng.choice(pool.mortal), speech(rng.randint(0, 3000)), is_last=rng.random() < 0.1)

    def aborter(number: int) -> None:
        rng = random.Random(1000 + number)
        for _ in range(120):
            name = rng.choice(pool.mortal)
            pool.abort(name)
            pool.open(name)
            assert not engine.abort_request("nobody")

    with stepping(engine) as outputs:
        together(
            *[partial(feeder, number) for number in range(6)],
            *[partial(aborter, number) for number in range(4)],
        )
        for name in pool.safe:
            while name not in pool.doomed:
                pool.feed_next(name)
        for name in pool.mortal:
            pool.feed(name, [], is_last=True)
    ended = Counter(output.request_id for output in outputs if output.finished)
    for name in pool.mortal:
        assert ended[name] == pool.opened[name] - pool.aborted[name], name
    assert_ended_once(
        [output for output in outputs if output.request_id in pool.safe],
        {name: pool.alone[pool.lengths[name]] for name in pool.safe},
    )
    assert all(output.finish_reason == "stop" for output in outputs if output.finished)
    assert pool.aborted.total() > 20 and pool.refused.total() > 0
    assert_idle(engine)


def test_readers_see_a_consistent_engine_while_streams_run() -> None:
    engine = make_engine(max_batch_size=6)
    alone = undisturbed(engine)
    expected: dict[str, RequestOutput] = {}
    clients_left = [4]
    account = threading.Lock()
    reads: Counter[int] = Counter()

    def client(number: int) -> None:
        rng = random.Random(number)
        try:
            for turn in range(3):
                name, length = f"{number}-{turn}", rng.choice(LENGTHS)
                expected[name] = alone[length]
                converse(engine, name, length, rng)
        finally:
            with account:
                clients_left[0] -= 1

    def reader(number: int) -> None:
        while clients_left[0] or engine.has_work:
            assert 0 <= engine.num_running <= 6
            assert 0 <= engine.num_waiting <= 12
            assert 0 <= engine.free_streams <= 6
            assert engine.has_work in (True, False)
            assert engine.metrics_snapshot().gauges
            reads[number] += 1

    with stepping(engine) as outputs:
        together(*[partial(client, number) for number in range(4)], *[partial(reader, number) for number in range(4)])
    assert all(reads[number] for number in range(4))
    assert_ended_once(outputs, expected)
    assert_idle(engine)


def test_metrics_are_handed_to_one_of_many_readers() -> None:
    """Samples of a series are cleared when they are read: together the readers have each of them once."""
    engine = make_engine()
    alone = undisturbed(engine)
    engine.metrics_snapshot()
    done = threading.Event()
    snapshots = []

    def client() -> None:
        try:
            for turn in range(4):
                converse(engine, str(turn), LENGTHS[0], random.Random(turn))
                assert_same(engine.run()[0], alone[LENGTHS[0]])
        finally:
            done.set()

    def reader() -> None:
        while not done.is_set():
            snapshots.append(engine.metrics_snapshot())

    together(client, reader, reader, reader)
    snapshots.append(engine.metrics_snapshot())
    name = "engine_step_seconds:streaming"
    # A stream of 9,000 samples has one window.
    assert sum(len(snapshot.samples.get(name, ())) for snapshot in snapshots) == 4
    assert sum(name in snapshot.samples for snapshot in snapshots) > 1
    assert_idle(engine)


@pytest.mark.parametrize("overlap_admit", [False, True])
def test_several_threads_step_at_once(overlap_admit: bool) -> None:
    engine = make_engine(max_batch_size=6, overlap_admit=overlap_admit)
    streamed = undisturbed(engine)
    offline = {n: engine.transcribe_outputs([speech(n)], streaming=False)[0] for n in LENGTHS}
    expected: dict[str, RequestOutput] = {}
    own: list[RequestOutput] = []

    def client(number: int) -> None:
        rng = random.Random(number)
        for turn in range(4):
            name, length = f"{number}-{turn}", rng.choice(LENGTHS)
            if turn % 2:
                expected[name] = offline[length]
                engine.add_request(speech(length), name, streaming=False)
            else:
                expected[name] = streamed[length]
                converse(engine, name, length, rng)
            own.extend(engine.step())

    with stepping(engine, threads=4) as outputs:
        together(*[partial(client, number) for number in range(6)])
    assert_ended_once([*outputs, *own], expected)
    assert_idle(engine)


def test_blocking_calls_while_others_stream() -> None:
    engine = make_engine(max_batch_size=12)
    streamed = undisturbed(engine)
    clips = [speech(n) for n in LENGTHS]
    offline = engine.transcribe_outputs(clips, streaming=False)
    expected: dict[str, RequestOutput] = {}
    drained: list[RequestOutput] = []

    def client(number: int) -> None:
        rng = random.Random(number)
        for turn in range(2):
            name, length = f"{number}-{turn}", rng.choice(LENGTHS)
            expected[name] = streamed[length]
            converse(engine, name, length, rng)

    def transcriber(streaming: bool) -> None:
        wanted = [streamed[n] for n in LENGTHS] if streaming else offline
        for _ in range(2):
            outputs = engine.transcribe_outputs(clips, streaming=streaming)
            for output, alone in zip(outputs, wanted, strict=True):
                assert_same(output, alone)

    def runner() -> None:
        for _ in range(10):
            outputs = engine.run()
            assert all(output.finished for output in outputs)
            drained.extend(outputs)

    with stepping(engine) as outputs:
        together(
            *[partial(client, number) for number in range(4)],
            *[partial(transcriber, streaming) for streaming in (True, False, True, False)],
            runner,
            runner,
        )
    assert_ended_once([*outputs, *drained], expected)
    assert_idle(engine)


def test_blocking_calls_from_several_threads(engine: ASREngine) -> None:
    clips = [speech(n) for n in LENGTHS]
    expected = engine.transcribe(clips)
    results: dict[int, object] = {}

    def work(number: int) -> None:
        results[number] = engine.transcribe(clips)

    together(*[partial(work, number) for number in range(4)])
    assert results == dict.fromkeys(range(4), expected)
    assert_consistent(engine)
    assert_idle(engine)


def test_a_shutdown_ends_what_others_stream() -> None:
    engine = make_engine(max_batch_size=6)
    names = [str(number) for number in range(6)]
    for name in names:
        engine.add_streaming_request(name)

    def feed(name: str) -> None:
        while True:
            engine.feed_chunk(name, speech(800))

    def client(name: str) -> None:
        with pytest.raises(KeyError, match=name):
            feed(name)

    def stop() -> None:
        engine.shutdown()
        engine.shutdown()

    with stepping(engine) as outputs:
        together(*[partial(client, name) for name in names], stop)
    assert not any(output.finished for output in outputs)
    assert_idle(engine)
