"""The configuration that the engine reads: resolved once, then frozen."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from oasr_backend.cache.history import UNLIMITED, bounded_blocks
from oasr_backend.checkpoints.hub import checkpoint_dir
from oasr_backend.config.engine_config import EngineConfig
from oasr_backend.config.fields import AUDIO_SCALE
from oasr_backend.config.machine import device_named, dtype_on
from oasr_backend.errors import ConfigError
from oasr_backend.features.spec import FeatureSpec
from oasr_backend.graphs.capture import captures_on
from oasr_backend.quantization.config import QuantizationConfig
from oasr_backend.utils.cores import available_cores

DEFAULT_METHOD = "ctc_greedy"
BEAM = "ctc_prefix_beam"
_MAX_BATCH_FRAMES = 60_000
_MAX_AUDIO_SECONDS = 600.0
_MAX_RECORDING_SECONDS = 14_400.0


@dataclass(frozen=True)
class ResolvedConfig:
    """The configuration on this machine: nothing left to derive but the pool, which needs the model's shape."""

    ckpt_dir: Path
    checkpoint_name: str | None
    """None: the format's own."""
    architecture: str | None
    """None: the checkpoint's."""
    unit_table: Path | None
    """None: the checkpoint's."""
    sentencepiece_model: Path | None
    """None: the checkpoint's own tokenizer."""
    quantization: QuantizationConfig | None
    """None: the checkpoint's."""
    device: torch.device
    dtype: torch.dtype
    num_threads: int
    gpu_memory_utilization: float
    max_pinned_audio_seconds: float
    max_pinned_audio_total_seconds: float
    gc_freeze: bool
    nvtx: bool
    feature_config: FeatureSpec | None
    """None: the checkpoint's."""
    audio_scale: float | None
    """None: the checkpoint's."""
    streaming: bool
    offline: bool
    chunk_size: int
    num_left_chunks: int
    finalize_silence_pad: bool
    recycle_streaming_history: bool
    streaming_cohort_admit: bool
    partial_decode_interval: int
    streaming_runtime: str | None
    """A registered runtime; None: the model's own."""
    block_size_frames: int
    max_num_blocks: int | None
    max_blocks_per_seq: int
    cache_memory_share: float
    max_batch_size: int
    max_batch_frames: int
    preferred_batch_size: tuple[int, ...]
    """Empty: none is preferred."""
    schedule_policy: str
    length_window_factor: int
    length_bucket_ratio: float
    max_offline_pad_ratio: float
    max_wait_time: float
    partition_policy: str
    max_packed_frames: int
    pad_batch: bool | None
    """None: as `graphs.ladder.pads_widths` says."""
    batch_ladder: tuple[int, ...] | None
    """Widths of a streaming step; None: those that `pad_batch` chooses."""
    max_audio_seconds: float
    long_form: bool
    long_form_window_seconds: float
    long_form_overlap_seconds: float
    overlap_admit: bool
    offline_decode_overlap: bool
    streaming_feature_lookahead: bool
    """False on a CPU, which does nothing meanwhile."""
    decode_method: str
    decode_options: Mapping[str, Any]
    rescoring_ctc_weight: float | None
    """None: the checkpoint's."""
    rescoring_reverse_weight: float | None
    """None: the checkpoint's."""
    endpointing: bool
    endpoint_silence_ms: float
    endpoint_start_ms: float
    endpoint_max_ms: float
    endpoint_history: str
    use_cuda_graphs: bool
    """False on a device that captures none."""
    streaming_graph_cache_growth: float
    streaming_graph_max_shapes: int
    use_offline_cuda_graphs: bool
    """False where no graphs are used at all."""
    offline_graph_batch_buckets: tuple[int, ...] | None
    """None: the preferred sizes, else powers of two."""
    offline_graph_frame_granularity: int
    offline_graph_max_frames: int
    offline_graph_max_captures: int


# What concerns captured steps alone, each with its default.
_OF_GRAPHS = (
    "streaming_graph_cache_growth",
    "streaming_graph_max_shapes",
    "offline_graph_batch_buckets",
    "offline_graph_frame_granularity",
    "offline_graph_max_frames",
    "offline_graph_max_captures",
)


def resolve(config: EngineConfig) -> ResolvedConfig:
    """Settles what depends on the machine.

    Raises ConfigError for a device or dtype that is not there, CheckpointError for a Hub id that cannot be fetched.
    """
    if not config.ckpt_dir:
        raise ConfigError("ckpt_dir is empty; name a checkpoint directory")
    device = device_named(config.device)
    dtype = dtype_on(device, config.dtype)
    _check_pages(config)
    if not captures_on(device):
        _check_graphs(config, device)
    uses_graphs = config.use_cuda_graphs and captures_on(device)
    return ResolvedConfig(
        ckpt_dir=checkpoint_dir(config.ckpt_dir),
        checkpoint_name=config.checkpoint_name,
        architecture=config.architecture,
        unit_table=None if config.unit_table is None else Path(config.unit_table),
        sentencepiece_model=None if config.sentencepiece_model is None else Path(config.sentencepiece_model),
        quantization=QuantizationConfig.parse(config.quantization),
        device=device,
        dtype=dtype,
        num_threads=config.num_threads or available_cores(),
        gpu_memory_utilization=config.gpu_memory_utilization,
        max_pinned_audio_seconds=config.max_pinned_audio_seconds,
        max_pinned_audio_total_seconds=config.max_pinned_audio_total_seconds,
        gc_freeze=config.gc_freeze,
        nvtx=config.nvtx,
        feature_config=config.feature_config,
        audio_scale=None if config.audio_scale == AUDIO_SCALE else config.audio_scale,
        streaming=config.service_mode != "offline",
        offline=config.service_mode != "streaming",
        chunk_size=config.chunk_size,
        num_left_chunks=config.num_left_chunks,
        finalize_silence_pad=config.finalize_silence_pad,
        recycle_streaming_history=config.recycle_streaming_history,
        streaming_cohort_admit=config.streaming_cohort_admit,
        partial_decode_interval=config.partial_decode_interval,
        streaming_runtime=None if config.use_paged_cache else "dense",
        block_size_frames=config.block_size_frames,
        max_num_blocks=config.max_num_blocks,
        max_blocks_per_seq=config.max_blocks_per_seq,
        cache_memory_share=config.cache_memory_share,
        max_batch_size=config.max_batch_size,
        max_batch_frames=config.max_batch_frames or _MAX_BATCH_FRAMES,
        preferred_batch_size=config.preferred_batch_size or (),
        schedule_policy=config.schedule_policy,
        length_window_factor=config.length_window_factor,
        length_bucket_ratio=config.length_bucket_ratio,
        max_offline_pad_ratio=config.max_offline_pad_ratio,
        max_wait_time=config.max_wait_time,
        partition_policy=config.partition_policy or ("packing" if _packs(config, device) else "frames"),
        max_packed_frames=config.max_packed_frames,
        pad_batch=config.streaming_graph_pad_batch,
        batch_ladder=config.streaming_graph_batch_ladder,
        max_audio_seconds=_max_audio_seconds(config),
        long_form=config.long_form,
        long_form_window_seconds=config.long_form_window_seconds,
        long_form_overlap_seconds=config.long_form_overlap_seconds,
        overlap_admit=config.overlap_admit,
        offline_decode_overlap=(
            config.offline_decode_overlap and config.offline_collate_prefetch and device.type != "cpu"
        ),
        streaming_feature_lookahead=config.streaming_feature_lookahead and device.type != "cpu",
        decode_method=config.decode_method or (BEAM if config.ctc_decoder_config is not None else DEFAULT_METHOD),
        decode_options=MappingProxyType(dict(config.ctc_decoder_config or config.decode_options)),
        rescoring_ctc_weight=config.rescoring_ctc_weight,
        rescoring_reverse_weight=config.rescoring_reverse_weight,
        endpointing=config.endpointing,
        endpoint_silence_ms=config.endpoint_silence_ms,
        endpoint_start_ms=config.endpoint_start_ms,
        endpoint_max_ms=config.endpoint_max_ms,
        endpoint_history=config.endpoint_history,
        use_cuda_graphs=uses_graphs,
        streaming_graph_cache_growth=config.streaming_graph_cache_growth,
        streaming_graph_max_shapes=config.streaming_graph_max_shapes,
        use_offline_cuda_graphs=uses_graphs and config.use_offline_cuda_graphs,
        offline_graph_batch_buckets=config.offline_graph_batch_buckets,
        offline_graph_frame_granularity=config.offline_graph_frame_granularity,
        offline_graph_max_frames=config.offline_graph_max_frames,
        offline_graph_max_captures=config.offline_graph_max_captures,
    )


def _packs(config: EngineConfig, device: torch.device) -> bool:
    """On CPU nothing is gained by equal shapes, which is what graphs need."""
    if config.enable_sequence_packing is None:
        return device.type == "cpu" and config.service_mode != "streaming"
    return config.enable_sequence_packing


def _check_graphs(config: EngineConfig, device: torch.device) -> None:
    """On a device that captures nothing, settings of graphs have no effect; the switches are on by default."""
    for field in fields(config):
        value = getattr(config, field.name)
        if field.name in _OF_GRAPHS and value != field.default:
            raise ConfigError(
                f"{field.name} is {value!r}, but on {device.type!r} nothing is captured as a graph; leave it "
                f"{field.default!r}"
            )


def _check_pages(config: EngineConfig) -> None:
    if config.chunk_size > config.max_blocks_per_seq * config.block_size_frames:
        raise ConfigError(
            f"chunk_size {config.chunk_size} does not fit into max_blocks_per_seq {config.max_blocks_per_seq} pages of "
            f"{config.block_size_frames} frames; raise one of these or lower chunk_size"
        )
    if config.num_left_chunks != UNLIMITED:
        needed = bounded_blocks(config.chunk_size, config.num_left_chunks, config.block_size_frames)
        if needed > config.max_blocks_per_seq:
            raise ConfigError(
                f"num_left_chunks {config.num_left_chunks} at chunk_size {config.chunk_size} needs {needed} pages a "
                f"stream but max_blocks_per_seq is {config.max_blocks_per_seq}; raise it or keep less history"
            )


def _max_audio_seconds(config: EngineConfig) -> float:
    if config.max_audio_seconds is not None:
        return config.max_audio_seconds
    return _MAX_RECORDING_SECONDS if config.long_form else _MAX_AUDIO_SECONDS
