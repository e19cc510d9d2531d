"""The paged cache against the dense runtime: two ways to hold the same history."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oasr_backend.engine import ASREngine, EngineConfig
from tests.golden.cases import CASES, GoldenCase, assert_log_probs_equal, wave
from tests.streams import FeatureStream, FeatureStreams

STREAMING = [name for name in CASES if GoldenCase(name).checkpoint.model.streaming]


def noise(frames: int, seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal((frames, 80)) * 3 + 10).astype(np.float32)


@settings(max_examples=60)
@given(st.data())
def test_random_mixes_give_the_same(data: Any) -> None:
    """Any architecture, chunk, history and page size; streams that join and leave while others go on."""
    case = GoldenCase(data.draw(st.sampled_from(STREAMING), label="case"))
    options = {
        "chunk": data.draw(st.integers(1, 20), label="chunk"),
        "left_chunks": data.draw(st.integers(-1, 4), label="left"),
        "streams": 3,
        "block_size_frames": data.draw(st.integers(1, 20), label="block"),
        "max_blocks_per_seq": 200,
    }
    paged = FeatureStreams(case.model, **options)
    dense = FeatureStreams(case.model, **options, use_paged_cache=False)
    waiting = [noise(length, seed) for seed, length in enumerate(data.draw(st.lists(st.integers(20, 160), max_size=5)))]
    live: list[tuple[FeatureStream, FeatureStream]] = []
    while waiting or live:
        if waiting and len(live) < 3 and (not live or data.draw(st.booleans())):
            features = waiting.pop()
            live.append((paged.open(features), dense.open(features)))
        for pair in [pair for pair in live if not paged.has_window(pair[0])]:
            live.remove(pair)
            if pair[0].chunks:
                assert_log_probs_equal(pair[0].log_probs, pair[1].log_probs)
            paged.close(pair[0])
            dense.close(pair[1])
        if live:
            chosen = data.draw(st.lists(st.sampled_from(range(len(live))), min_size=1, unique=True))
            paged.step([live[index][0] for index in chosen])
            dense.step([live[index][1] for index in chosen])
    assert paged.runner.runtime.usage.blocks_used == 0
    assert dense.runner.runtime.usage.slots_free == 3


@pytest.mark.parametrize("name", STREAMING)
def test_the_engine_gives_the_same_text_over_either(name: str) -> None:
    config: dict[str, Any] = {
        "ckpt_dir": str(GoldenCase(name).path),
        "dtype": "float32",
        "gc_freeze": False,
        "max_batch_size": 3,
        "max_blocks_per_seq": 32,
        "num_left_chunks": 2,
        "chunk_size": 8,
    }
    clips = [wave(utterance) for utterance in range(3)]
    paged = ASREngine(EngineConfig(**config)).transcribe(clips)
    assert any(paged)
    assert paged == ASREngine(EngineConfig(**config, use_paged_cache=False)).transcribe(clips)


@torch.inference_mode()
@pytest.mark.parametrize("name", STREAMING)
def test_grouped_heads_and_other_positions_keep_their_own_cache(name: str) -> None:
    case = GoldenCase(name)
    attention = case.checkpoint.model.encoder.attention
    spec = case.model.cache_spec
    assert spec.value_heads == attention.kv_heads
    assert spec.key_heads == (attention.heads if attention.position == "rel_pos" else attention.kv_heads)
    assert spec.bias_heads == (attention.heads if attention.position == "rel_pos" else 0)
