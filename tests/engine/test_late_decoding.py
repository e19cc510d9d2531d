"""An offline pass that is decoded behind the forward pass of the next one."""

from collections.abc import Callable

import pytest
import torch

from oasr_backend.engine import ASREngine
from tests.engine.engines import assert_idle, assert_same, drain, failing_once, finals, make_engine, speech

CLIPS = [speech(length, index % 3) for index, length in enumerate((16000, 17000, 30000, 31000, 50000, 600, 52000))]


def make_late(**options: object) -> ASREngine:
    """Two clips a pass, decoded late as on a GPU."""
    engine = make_engine(max_batch_size=2, **options)
    engine._offline._overlap = True
    return engine


def watched(engine: ASREngine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The order of forward passes and decodings."""
    seen: list[str] = []

    def watch(owner: object, name: str, label: str) -> None:
        call: Callable[..., object] = getattr(owner, name)

        def record(*args: object, **kwargs: object) -> object:
            seen.append(label)
            return call(*args, **kwargs)

        monkeypatch.setattr(owner, name, record)

    watch(engine._runner, "forward_clips", "forward")
    watch(engine._outputs, "advance", "decode")
    return seen


def test_a_pass_is_decoded_behind_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_late(schedule_policy="fcfs")
    seen = watched(engine, monkeypatch)
    ids = [engine.add_request(clip, streaming=False) for clip in CLIPS[:6]]
    assert engine.step() == []
    assert (seen, engine.num_running, engine.num_waiting, engine.has_work) == (["forward"], 2, 4, True)
    assert [output.request_id for output in engine.step()] == ids[:2]
    # Nothing waits behind the third batch, which is decoded at once.
    assert [output.request_id for output in engine.step()] == ids[2:]
    assert seen == ["forward", "forward", "decode", "forward", "decode", "decode"]
    assert_idle(engine)


def test_a_lone_batch_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_late()
    seen = watched(engine, monkeypatch)
    request_id = engine.add_request(CLIPS[0], streaming=False)
    assert [output.request_id for output in engine.step()] == [request_id]
    assert seen == ["forward", "decode"]


@pytest.mark.parametrize("options", [{}, {"max_batch_frames": 320}, {"enable_sequence_packing": True}])
def test_late_or_not_the_texts_are_the_same(options: dict[str, object]) -> None:
    late, prompt = make_late(**options), make_engine(max_batch_size=2, **options)
    for actual, expected in zip(
        late.transcribe_outputs(CLIPS, streaming=False), prompt.transcribe_outputs(CLIPS, streaming=False), strict=True
    ):
        assert_same(actual, expected)
    assert_idle(late)


def test_a_recording_in_windows_is_the_same() -> None:
    options = {"long_form": True, "long_form_window_seconds": 3.0, "long_form_overlap_seconds": 0.5}
    late, prompt = make_late(**options), make_engine(max_batch_size=2, **options)
    recording = speech(16000 * 20)
    assert late.transcribe_offline(recording) == prompt.transcribe_offline(recording)
    held = late.add_request(recording, streaming=False)
    late.step()
    assert late.abort_request(held)
    assert drain(late) == []
    assert_idle(late)


def test_a_held_clip_can_be_aborted() -> None:
    engine = make_late(schedule_policy="fcfs")
    ids = [engine.add_request(clip, streaming=False) for clip in CLIPS[:4]]
    engine.step()
    with pytest.raises(ValueError, match="in use"):
        engine.add_request(CLIPS[0], request_id=ids[0], streaming=False)
    assert engine.abort_request(ids[0]) and not engine.abort_request(ids[0])
    assert engine.num_running == 1
    again = engine.add_request(CLIPS[0], request_id=ids[0], streaming=False)
    assert sorted(finals(drain(engine))) == sorted({again, *ids[1:]})
    assert_idle(engine)


def test_when_those_behind_it_are_aborted_a_held_pass_is_decoded() -> None:
    engine = make_late(schedule_policy="fcfs")
    ids = [engine.add_request(clip, streaming=False) for clip in CLIPS[:3]]
    engine.step()
    assert engine.abort_request(ids[2]) and engine.has_work
    assert sorted(finals(drain(engine))) == sorted(ids[:2])
    assert_idle(engine)


@pytest.mark.parametrize("part", ["forward_clips", "advance"])
@pytest.mark.parametrize("error", [RuntimeError("broken"), torch.OutOfMemoryError("full")])
def test_an_error_stays_with_its_pass(monkeypatch: pytest.MonkeyPatch, part: str, error: Exception) -> None:
    engine = make_late(schedule_policy="fcfs")
    owner = engine._runner if part == "forward_clips" else engine._outputs
    monkeypatch.setattr(owner, part, failing_once(getattr(owner, part), error))
    ids = [engine.add_request(clip, streaming=False) for clip in CLIPS[:4]]
    ended = finals(drain(engine))
    assert sorted(ended) == sorted(ids)
    # Clips are tried once more alone, but not where memory ran out.
    is_full = isinstance(error, torch.OutOfMemoryError)
    assert [ended[one].error_stage for one in ids] == (["offline_oom"] * 2 + [None] * 2 if is_full else [None] * 4)
    assert_idle(engine)


def test_a_shut_down_engine_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_late(schedule_policy="fcfs")
    closed: list[object] = []
    close = engine._outputs.close
    monkeypatch.setattr(engine._outputs, "close", lambda transcript: (closed.append(transcript), close(transcript)))
    for clip in CLIPS[:4]:
        engine.add_request(clip, streaming=False)
    engine.step()
    engine.shutdown()
    assert len(closed) == 2 and not engine._offline.is_holding
