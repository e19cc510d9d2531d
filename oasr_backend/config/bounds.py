"""The least and the most that a number may be."""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Bound:
    """A closed range; `above` leaves `low` itself out."""

    low: float
    high: float = math.inf
    above: bool = False

    def __contains__(self, value: float) -> bool:
        return (self.low < value if self.above else self.low <= value) and value <= self.high

    def __str__(self) -> str:
        low = f"above {self.low:g}" if self.above else f"at least {self.low:g}"
        if math.isinf(self.high):
            return low
        return f"{low} and finite" if self.high == sys.float_info.max else f"{low} and at most {self.high:g}"


_COUNT = Bound(1)
_AMOUNT = Bound(0)
_SHARE = Bound(0, 1, above=True)
_RATIO = Bound(0, 1)

BOUNDS: Mapping[str, Bound] = {
    "num_threads": _COUNT,
    "gpu_memory_utilization": _SHARE,
    "max_pinned_audio_seconds": _AMOUNT,
    "max_pinned_audio_total_seconds": _AMOUNT,
    "max_staging_elems": _AMOUNT,
    "audio_scale": Bound(0, sys.float_info.max, above=True),
    "chunk_size": _COUNT,
    "block_size_frames": _COUNT,
    "max_num_blocks": _COUNT,
    "max_blocks_per_seq": _COUNT,
    "cache_memory_share": _SHARE,
    "max_batch_size": _COUNT,
    "max_batch_frames": _COUNT,
    "length_window_factor": _COUNT,
    "length_bucket_ratio": _RATIO,
    "max_offline_pad_ratio": _AMOUNT,
    "max_wait_time": _AMOUNT,
    "max_packed_frames": _COUNT,
    "max_audio_seconds": _AMOUNT,
    "long_form_window_seconds": Bound(1, sys.float_info.max),
    "long_form_overlap_seconds": _AMOUNT,
    "rescoring_ctc_weight": _AMOUNT,
    "rescoring_reverse_weight": _RATIO,
    "endpoint_silence_ms": Bound(40, 3_600_000),
    "endpoint_start_ms": Bound(40, 3_600_000),
    "endpoint_max_ms": Bound(40, 3_600_000),
    "decode_steps_per_tick": _COUNT,
    "max_tick_ms": _AMOUNT,
    "max_decode_slots": _COUNT,
    "decode_admit_window_ms": _AMOUNT,
    "decode_kv_budget_gib": _AMOUNT,
    "max_new_tokens": _COUNT,
    "transducer_max_sym_per_frame": _COUNT,
    "streaming_graph_cache_growth": Bound(1, sys.float_info.max),
    "streaming_graph_max_shapes": _COUNT,
    "offline_graph_frame_granularity": _COUNT,
    "offline_graph_max_frames": _COUNT,
    "offline_graph_max_captures": _COUNT,
}
