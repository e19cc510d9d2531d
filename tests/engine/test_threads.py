"""Every call from any thread."""

import random
import threading
from collections import Counter

from oasr_backend.engine import ASREngine, RequestOutput
from tests.engine.engines import assert_consistent, assert_idle, assert_same, every, make_engine, speech, stream

THREADS, ROUNDS = 8, 3


def test_feeders_aborters_and_readers_with_one_stepping_thread() -> None:
    engine = make_engine(max_batch_size=THREADS)
    lengths = (9000, 16000, 24000)
    streamed = {n: stream(engine, [speech(n)]) for n in lengths}
    offline = {n: engine.transcribe_outputs([speech(n)], streaming=False)[0] for n in lengths}
    expected: dict[str, RequestOutput] = {}
    aborted: set[str] = set()
    outputs: list[RequestOutput] = []
    errors: list[BaseException] = []
    done = threading.Event()

    def client(number: int) -> None:
        rng = random.Random(number)
        try:
            for turn in range(ROUNDS):
                name, n = f"{number}-{turn}", rng.choice(lengths)
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
        except BaseException as error:
            errors.append(error)

    def stepper() -> None:
        try:
            while not done.is_set() or engine.has_work:
                outputs.extend(engine.step())
                done.wait(0.0005)
        except BaseException as error:
            errors.append(error)

    clients = [threading.Thread(target=client, args=(number,), daemon=True) for number in range(THREADS)]
    engine_thread = threading.Thread(target=stepper, daemon=True)
    for thread in (*clients, engine_thread):
        thread.start()
    for thread in clients:
        thread.join(60)
    done.set()
    engine_thread.join(60)
    assert not errors, errors
    assert not any(thread.is_alive() for thread in (*clients, engine_thread))
    ended = [output for output in outputs if output.finished]
    assert Counter(output.request_id for output in ended) == Counter(dict.fromkeys(expected, 1))
    for output in ended:
        assert_same(output, expected[output.request_id])
    assert aborted and len(expected) > THREADS
    assert_idle(engine)


def test_blocking_calls_from_several_threads(engine: ASREngine) -> None:
    clips = [speech(n) for n in (9000, 16000, 24000)]
    expected = engine.transcribe(clips)
    results: dict[int, object] = {}

    def work(number: int) -> None:
        results[number] = engine.transcribe(clips)

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == dict.fromkeys(range(4), expected)
    assert_consistent(engine)
    assert_idle(engine)
