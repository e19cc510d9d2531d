"""Clips in one gapless row: where they lie, and that each hears what it would hear alone."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from oasr_backend.decode.scores import Needs
from oasr_backend.engine import ASREngine, RequestOutput
from oasr_backend.engine.packing import PackedRow, pack
from oasr_backend.features.spec import FeatureSpec
from oasr_backend.models.geometry import FRONT_ENDS, FrontEndGeometry
from tests.engine.engines import TINY, RecordingStrategy, assert_idle, assert_same, failing_once, make_engine, speech
from tests.golden.cases import DATA, float32_model

WIDEBAND = FeatureSpec()
NARROWBAND = FeatureSpec(sample_rate=8000)
ODD = FeatureSpec(sample_rate=22050, frame_length_ms=20.0, frame_shift_ms=12.5)
CHECKPOINTS = (
    "u2pp_conformer_ln_causal",
    "u2_conformer_bn_causal",
    "u2_conformer_bn_noncausal",
    "u2pp_conformer_conv2d6",
    "u2_transformer_abs",
    "u2_conformer_nobias_gqa",
)
# Samples and utterance: none at all, less than a feature frame, one sample short of an encoder frame and just one.
MIXED = ((30000, 2), (0, 0), (1360, 1), (399, 0), (20000, 1), (1359, 2), (47000, 0), (8000, 2))


# the rule

specs = pytest.mark.parametrize("spec", [WIDEBAND, NARROWBAND, ODD], ids=["16 kHz", "8 kHz", "22.05 kHz"])
front_ends = pytest.mark.parametrize("geometry", FRONT_ENDS.values(), ids=FRONT_ENDS)
lengths = st.lists(st.one_of(st.integers(0, 3000), st.integers(0, 60000), st.just(0)), max_size=12)
few = settings(max_examples=20)


def samples_seen(spec: FeatureSpec, geometry: FrontEndGeometry, frame: int) -> range:
    """The samples of a row on which its encoder frame `frame` depends."""
    first = frame * geometry.rate
    return range(first * spec.shift_samples, (first + geometry.right_context) * spec.shift_samples + spec.frame_samples)


@specs
@front_ends
@few
@given(samples=lengths)
@example(samples=[])
@example(samples=[0, 0])
@example(samples=[100, 60000, 100])
def test_every_clip_keeps_the_frames_it_would_have_alone(
    spec: FeatureSpec, geometry: FrontEndGeometry, samples: list[int]
) -> None:
    row = pack(samples, spec, geometry)
    assert row.frames == tuple(geometry.frames_out(spec.num_frames(count)) for count in samples)
    assert len(row.starts) == len(row.used) == len(row.first_frames) == len(samples)


@specs
@front_ends
@few
@given(samples=lengths)
def test_kept_frames_are_those_of_the_clips_one_after_another(
    spec: FeatureSpec, geometry: FrontEndGeometry, samples: list[int]
) -> None:
    row = pack(samples, spec, geometry)
    kept = row.kept
    assert kept == sorted(set(kept)) and len(kept) == sum(row.frames)
    assert all(frame < geometry.frames_out(spec.num_frames(row.samples)) for frame in kept)
    done = 0
    for first, count in zip(row.first_frames, row.frames, strict=True):
        assert kept[done : done + count] == list(range(first, first + count))
        done += count


@specs
@front_ends
@few
@given(samples=lengths)
def test_every_clip_lies_on_a_whole_encoder_frame_and_apart_from_the_others(
    spec: FeatureSpec, geometry: FrontEndGeometry, samples: list[int]
) -> None:
    row = pack(samples, spec, geometry)
    unit = geometry.rate * spec.shift_samples
    end = 0
    for start, used, first, count, own in zip(row.starts, row.used, row.first_frames, row.frames, samples, strict=True):
        assert start == first * unit
        assert (used == 0) == (count == 0) and used <= own
        if used:
            assert end <= start < end + unit, "clips overlap, or lie further apart than a frame needs"
            end = start + used
    assert row.samples == end


@specs
@front_ends
@few
@given(samples=lengths)
def test_no_kept_frame_sees_a_sample_of_another_clip(
    spec: FeatureSpec, geometry: FrontEndGeometry, samples: list[int]
) -> None:
    """And none of those that the clip has but its frames do not depend on."""
    row = pack(samples, spec, geometry)
    for start, used, first, count in zip(row.starts, row.used, row.first_frames, row.frames, strict=True):
        if count:
            assert samples_seen(spec, geometry, first).start == start
            assert samples_seen(spec, geometry, first + count - 1).stop == start + used


def test_clips_lie_where_arithmetic_puts_them() -> None:
    """Seven feature frames give a frame: 6 · 160 + 400 samples; the next one begins at a multiple of 640."""
    row = pack([1360, 2100, 1359, 1360], WIDEBAND, FRONT_ENDS["conv2d"])
    assert row == PackedRow(
        starts=(0, 1920, 4480, 4480),
        used=(1360, 2000, 0, 1360),
        samples=5840,
        first_frames=(0, 3, 7, 7),
        frames=(1, 2, 0, 1),
    )
    assert row.kept == [0, 3, 4, 7]


# the engine

ONE_BATCH = {"service_mode": "offline", "max_batch_size": 8, "max_offline_pad_ratio": 0.0, "gc_freeze": False}


def packed_engine(name: str = TINY.name, **options: object) -> ASREngine:
    """All clips that wait go into one batch."""
    return make_engine(DATA / name, **{**ONE_BATCH, "enable_sequence_packing": True, **options})


@cache
def padded_engine(name: str) -> ASREngine:
    return make_engine(DATA / name, service_mode="offline", gc_freeze=False)


@cache
def alone(name: str, samples: int, utterance: int) -> RequestOutput:
    return padded_engine(name).transcribe_outputs([speech(samples, utterance)], streaming=False)[0]


def clips(parts: Sequence[tuple[int, int]]) -> list[np.ndarray]:
    return [speech(samples, utterance) for samples, utterance in parts]


def assert_all_as_alone(outputs: Sequence[RequestOutput], parts: Sequence[tuple[int, int]], name: str) -> None:
    for output, part in zip(outputs, parts, strict=True):
        assert_same(output, alone(name, *part))


def watched(engine: ASREngine, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The encoder frames of the clips of every packed row, as they are run."""
    model = engine._runner._model
    encode = model.encode_packed
    rows: list[list[int]] = []

    def encode_packed(features: torch.Tensor, kept: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
        rows.append(list(lengths))
        return encode(features, kept, lengths)

    monkeypatch.setattr(model, "encode_packed", encode_packed)
    monkeypatch.setattr(model, "encode_clips", failing_once(model.encode_clips, AssertionError("a padded batch")))
    return rows


def frames(samples: int, engine: ASREngine) -> int:
    """Encoder frames of a clip."""
    inputs = engine._inputs
    return inputs._geometry.frames_out(inputs.spec.num_frames(samples))


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_clips_in_one_row_equal_the_clips_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = packed_engine(name)
    rows = watched(engine, monkeypatch)
    outputs = engine.transcribe_outputs(clips(MIXED), streaming=False)
    assert rows == [[frames(samples, engine) for samples, _ in MIXED]]
    assert_all_as_alone(outputs, MIXED, name)
    assert len({output.text for output in outputs}) >= 4
    assert_idle(engine)


@torch.inference_mode()
def log_probs(engine: ASREngine, samples: np.ndarray) -> np.ndarray:
    """[frames, vocabulary] of one pass over the clip."""
    model = float32_model(engine.config.ckpt_dir)
    features, counts = engine._inputs.clips([samples])
    scores = model.score(model.encode_clips(features, torch.tensor(counts)), Needs(log_probs=True))
    assert scores.full is not None
    return scores.full[0].numpy()


@pytest.mark.parametrize("name", [*CHECKPOINTS, "u2pp_conformer_conv2d8"])
def test_their_log_probabilities_equal_those_alone(name: str, recorder: RecordingStrategy) -> None:
    engine = packed_engine(name, decode_method="recording")
    engine.transcribe_outputs(clips(MIXED), streaming=False)
    assert [len(session.matrix) for session in recorder.sessions] == [frames(samples, engine) for samples, _ in MIXED]
    for clip, session in zip(clips(MIXED), recorder.sessions, strict=True):
        if len(session.matrix):
            np.testing.assert_allclose(session.matrix, log_probs(engine, clip), atol=1e-4, rtol=0)


@cache
def shared_engine() -> ASREngine:
    """Rows of at most 60 encoder frames; shared, so it must be left idle."""
    return packed_engine(max_packed_frames=60)


@settings(max_examples=25)
@given(st.lists(st.sampled_from([*MIXED, (12000, 0), (33000, 1), (40000, 2)]), min_size=1, max_size=8))
def test_any_clips_in_any_order_equal_the_clips_alone(parts: list[tuple[int, int]]) -> None:
    engine = shared_engine()
    assert_all_as_alone(engine.transcribe_outputs(clips(parts), streaming=False), parts, TINY.name)
    assert_idle(engine)


@pytest.mark.parametrize("most", [1, 30, 60, 100, 8192])
def test_a_row_holds_no_more_than_it_may_and_the_order_is_restored(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = packed_engine(max_packed_frames=most)
    rows = watched(engine, monkeypatch)
    ids = [engine.add_request(clip, streaming=False) for clip in clips(MIXED)]
    outputs = engine.step()
    assert [output.request_id for output in outputs] == ids
    assert_all_as_alone(outputs, MIXED, TINY.name)
    held = [count for row in rows for count in row if count]
    assert sorted(held) == sorted(frames(samples, engine) for samples, _ in MIXED if frames(samples, engine))
    for row in rows:
        assert sum(row) <= most or len(row) == 1
    assert len(rows) == 1 if most == 8192 else len(rows) > 1
    assert_idle(engine)


def test_a_clip_larger_than_a_row_goes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = packed_engine(max_packed_frames=40)
    rows = watched(engine, monkeypatch)
    parts = [(47000, 0), (8000, 2), (8000, 1)]
    assert_all_as_alone(engine.transcribe_outputs(clips(parts), streaming=False), parts, TINY.name)
    assert sorted(rows) == sorted([[frames(8000, engine)] * 2, [frames(47000, engine)]])
    assert frames(47000, engine) > 40


@pytest.mark.parametrize("parts", [[(0, 0)], [(399, 1), (0, 0), (1359, 2)]], ids=["one", "three"])
def test_clips_without_a_frame_need_no_row(parts: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    engine = packed_engine()
    rows = watched(engine, monkeypatch)
    for output, (samples, _) in zip(engine.transcribe_outputs(clips(parts), streaming=False), parts, strict=True):
        assert (output.text, output.finish_reason) == ("", "stop")
        assert output.audio_seconds == samples / 16000
    assert rows == []


def test_a_row_has_no_padding() -> None:
    packed, padded = packed_engine(), packed_engine(enable_sequence_packing=False)
    for engine in (packed, padded):
        engine.transcribe_outputs(clips(MIXED), streaming=False)
    samples = packed.metrics_snapshot().samples
    assert samples["engine_batch_padding_ratio"] == [0.0]
    assert samples["engine_batch_size:offline"] == [len(MIXED)]
    assert padded.metrics_snapshot().samples["engine_batch_padding_ratio"][0] > 0.3


def test_the_partition_policy_by_name_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = packed_engine(enable_sequence_packing=False, partition_policy="packing")
    rows = watched(engine, monkeypatch)
    assert_all_as_alone(engine.transcribe_outputs(clips(MIXED), streaming=False), MIXED, TINY.name)
    assert len(rows) == 1


def test_packed_clips_and_streams_share_an_engine() -> None:
    """In the same steps, neither changing the other."""
    engine = packed_engine(service_mode="mixed")
    (expected,) = make_engine(gc_freeze=False).transcribe_outputs([speech(40000)])
    streams = [engine.add_request(speech(40000)) for _ in range(3)]
    ids = [engine.add_request(clip, streaming=False) for clip in clips(MIXED)]
    outputs = {output.request_id: output for output in engine.run()}
    assert_all_as_alone([outputs[request_id] for request_id in ids], MIXED, TINY.name)
    for request_id in streams:
        assert_same(outputs[request_id], expected)
    assert_idle(engine)


@pytest.mark.parametrize("culprit", range(3))
def test_a_failing_row_is_run_again_clip_by_clip(culprit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = packed_engine()
    parts = [(20000, 1), (30000, 2), (40000, 0)]
    rows = watched(engine, monkeypatch)
    encode = engine._runner._model.encode_packed
    poison = frames(parts[culprit][0], engine)

    def fragile(features: torch.Tensor, kept: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
        hidden = encode(features, kept, lengths)
        if poison in lengths:
            raise RuntimeError("this clip")
        return hidden

    monkeypatch.setattr(engine._runner._model, "encode_packed", fragile)
    outputs = engine.transcribe_outputs(clips(parts), streaming=False)
    assert [len(row) for row in rows] == [3, 1, 1, 1]
    for index, (output, part) in enumerate(zip(outputs, parts, strict=True)):
        if index == culprit:
            assert (output.finish_reason, output.error_stage, output.text) == ("error", "offline_forward", "")
        else:
            assert_same(output, alone(TINY.name, *part))
    assert engine.metrics_snapshot().counters["requests_failed:offline_forward"] == 1
    assert_idle(engine)


def test_another_row_of_the_batch_does_not_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = packed_engine(max_packed_frames=60)
    parts = [(8000, 0), (9000, 1), (12000, 2), (47000, 0)]
    rows = watched(engine, monkeypatch)
    model = engine._runner._model
    monkeypatch.setattr(model, "encode_packed", failing_once(model.encode_packed, RuntimeError("this row")))
    outputs = engine.transcribe_outputs(clips(parts), streaming=False)
    assert_all_as_alone(outputs, parts, TINY.name)
    assert [len(row) for row in rows] == [1, 1, 1, 1], "the first row failed before it was run"
    assert "requests_failed:offline_forward" not in engine.metrics_snapshot().counters
