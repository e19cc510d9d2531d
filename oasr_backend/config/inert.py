"""Fields without effect. To give one its effect, read it and delete its row."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Inert:
    """A field that does nothing: refused at any value but its default and those of `off`, which ask for no more."""

    name: str
    reason: str
    off: tuple[Any, ...] = ()


_NO_OVERLAP = "features, forward pass and decoding of a step run one after the other"
_AUTOREGRESSIVE = "no autoregressive decode family is installed"
_NO_WFST = "no WFST decoder is installed"

INERT: tuple[Inert, ...] = (
    # checkpoint and device
    Inert("max_staging_elems", "no staging buffer is kept from batch to batch"),
    Inert("tuning", "kernels are not tuned"),
    # streaming
    Inert("overlap_partial_readback", _NO_OVERLAP),
    Inert("vad", "voice activity detection is not available"),
    # decoding
    Inert("decoder_type", _NO_WFST),
    Inert("wfst_decoder_config", _NO_WFST),
    Inert("fst_path", _NO_WFST),
    # autoregressive decoding
    Inert("decode_steps_per_tick", _AUTOREGRESSIVE),
    Inert("max_tick_ms", _AUTOREGRESSIVE),
    Inert("max_decode_slots", _AUTOREGRESSIVE),
    Inert("decode_admit_window_ms", _AUTOREGRESSIVE),
    Inert("decode_kv_budget_gib", _AUTOREGRESSIVE),
    Inert("max_new_tokens", _AUTOREGRESSIVE),
    Inert("llm_prompt", _AUTOREGRESSIVE),
    Inert("transducer_max_sym_per_frame", "no transducer is installed"),
    # graphs
    Inert("use_feature_cuda_graphs", "feature extraction is not captured as a graph"),
    Inert("feature_graph_batch_buckets", "feature extraction is not captured as a graph"),
    Inert("use_ctc_cuda_graphs", "CTC decoding is not captured as a graph"),
    Inert("use_transducer_cuda_graphs", "no transducer is installed", off=(False,)),
)
