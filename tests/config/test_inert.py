"""A field that does nothing takes no value that asks for something."""

from typing import Any

import pytest

from oasr_backend.config import EngineConfig
from oasr_backend.config.inert import INERT
from oasr_backend.errors import ConfigError
from tests.config.test_defaults import DEFAULTS

# A possible value that asks for what is not there.
REFUSED: dict[str, tuple[Any, str]] = {
    "max_staging_elems": (1024, "no staging buffer"),
    "tuning": ("full", "kernels are not tuned"),
    "overlap_partial_readback": (True, "one after the other"),
    "vad": ({}, "voice activity detection"),
    "decoder_type": ("ctc_wfst", "no WFST decoder is installed"),
    "wfst_decoder_config": ({}, "no WFST decoder is installed"),
    "fst_path": ("graph.fst", "no WFST decoder is installed"),
    "decode_steps_per_tick": (64, "no autoregressive decode family is installed"),
    "max_tick_ms": (0, "no autoregressive decode family is installed"),
    "max_decode_slots": (8, "no autoregressive decode family is installed"),
    "decode_admit_window_ms": (5, "no autoregressive decode family is installed"),
    "decode_kv_budget_gib": (2.0, "no autoregressive decode family is installed"),
    "max_new_tokens": (64, "no autoregressive decode family is installed"),
    "llm_prompt": ("Transcribe.", "no autoregressive decode family is installed"),
    "transducer_max_sym_per_frame": (3, "no transducer is installed"),
    "use_feature_cuda_graphs": (True, "feature extraction is not captured as a graph"),
    "feature_graph_batch_buckets": ((8,), "feature extraction is not captured as a graph"),
    "use_ctc_cuda_graphs": (True, "CTC decoding is not captured as a graph"),
}
# Fields that may also be switched off, because nothing is on.
SWITCHED_OFF = ("use_transducer_cuda_graphs",)


def test_all_of_them_are_tried_here() -> None:
    assert {inert.name for inert in INERT} == {*REFUSED, *SWITCHED_OFF}
    assert len(INERT) == len({inert.name for inert in INERT})


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_have_no_effect_is_refused_with_the_reason(name: str) -> None:
    value, reason = REFUSED[name]
    with pytest.raises(ConfigError) as caught:
        EngineConfig(**{name: value})
    message = str(caught.value)
    assert message.startswith(f"{name} is {value!r}, but ")
    assert reason in message
    assert message.endswith(f"leave it {DEFAULTS[name]!r}")


@pytest.mark.parametrize("name", REFUSED)
def test_its_default_may_be_written_down(name: str) -> None:
    assert getattr(EngineConfig(**{name: DEFAULTS[name]}), name) == DEFAULTS[name]


@pytest.mark.parametrize("name", SWITCHED_OFF)
def test_what_is_off_anyway_may_be_switched_off(name: str) -> None:
    assert getattr(EngineConfig(**{name: False}), name) is False
    assert DEFAULTS[name] is True


@pytest.mark.parametrize("path", ["graph.img", "somewhere/HLG.pt"])
def test_graphs_of_other_decoders_are_refused_by_name(path: str) -> None:
    with pytest.raises(ConfigError, match=rf"^fst_path is '{path}'; \.img and HLG\.pt are not read"):
        EngineConfig(fst_path=path)
