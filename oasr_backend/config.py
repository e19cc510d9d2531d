"""What a user configures, and what the engine reads: resolved once, then frozen."""

import re
from dataclasses import dataclass, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_type_hints

import torch

from oasr_backend.cache.history import UNLIMITED, bounded_blocks
from oasr_backend.errors import ConfigError
from oasr_backend.features.spec import FeatureSpec
from oasr_backend.utils.cores import available_cores
from oasr_backend.utils.host import memory_bytes, multiplies_bfloat16

SERVICE_MODES = ("mixed", "streaming", "offline")
_KINDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    FeatureSpec: "a FeatureSpec",
}
_DEVICE = re.compile(r"auto|cpu|cuda(?::\d+)?")
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class EngineConfig:
    """Every knob of the engine, with its default.

    Raises ConfigError at construction for a value that is impossible in itself; what depends on the checkpoint or
    the machine is checked by `resolve`.
    """

    ckpt_dir: str = ""
    """Checkpoint directory."""
    device: str = "auto"
    """`auto` (CUDA where present, else CPU), `cpu`, `cuda` or `cuda:N`."""
    dtype: str = "auto"
    """`auto` (float16 on CUDA; on CPU bfloat16 where it is native, else float32), `float32`, `bfloat16`, `float16`."""
    service_mode: str = "mixed"
    """`mixed`, or `streaming` or `offline` to reject the other kind of request."""
    num_threads: int | None = None
    """Threads of the forward pass on CPU; None: the cores the process may use."""
    chunk_size: int = 16
    """Encoder frames per streaming step, and the largest a stream may ask for."""
    num_left_chunks: int = UNLIMITED
    """Chunks of history a streaming step sees; -1: all."""
    max_batch_size: int = 32
    """Live streams, and the width of an offline batch."""
    max_batch_frames: int | None = None
    """Most feature frames of an offline batch, padding included; None: 60,000."""
    max_audio_seconds: float = 600.0
    """Longest offline clip."""
    max_wait_time: float = 0.2
    """Seconds after which a waiting request goes before all that are not overdue, whatever their priority."""
    schedule_policy: str = "fcfs"
    """How an offline batch is chosen: a registered batching policy."""
    partition_policy: str = "frames"
    """How a chosen batch is cut into forward passes: a registered partition policy."""
    block_size_frames: int = 16
    """Encoder frames per page of the attention cache."""
    max_num_blocks: int | None = None
    """Pages in the pool; None: what all streams can address, bounded by `cache_memory_share`."""
    max_blocks_per_seq: int = 512
    """Most pages a stream holds."""
    cache_memory_share: float = 0.25
    """Share of the memory (host or GPU) that a derived pool may take."""
    use_paged_cache: bool = True
    """False: the dense runtime, one stream at a time; slow, for comparison."""
    recycle_streaming_history: bool = False
    """At its page ceiling a stream drops its oldest page; otherwise it ends with finish_reason `length`."""
    finalize_silence_pad: bool = True
    """Feed a window of silence after the last sample, so that the last word is decoded whole."""
    streaming_graph_pad_batch: bool | None = None
    """Pad a step to the next width of the ladder; None: only where steps are captured as graphs."""
    decode_method: str = "ctc_greedy"
    """A registered decode strategy."""
    feature_config: FeatureSpec | None = None
    """Features instead of the checkpoint's own, with a warning where they differ (as text: a JSON object)."""

    def __post_init__(self) -> None:
        self._check_types()
        self._one_of("service_mode", SERVICE_MODES)
        self._one_of("dtype", ("auto", *_DTYPES))
        for name in ("chunk_size", "max_batch_size", "block_size_frames", "max_blocks_per_seq"):
            self._at_least(name, 1)
        for name in ("num_threads", "max_batch_frames", "max_num_blocks"):
            if getattr(self, name) is not None:
                self._at_least(name, 1)
        if self.num_left_chunks < UNLIMITED:
            raise ConfigError(f"num_left_chunks is {self.num_left_chunks}; use -1 for all history, else 0 or more")
        if not 0 < self.cache_memory_share <= 1:
            raise ConfigError(f"cache_memory_share is {self.cache_memory_share}; it must be above 0 and at most 1")
        for name in ("max_audio_seconds", "max_wait_time"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be 0 or more")

    @classmethod
    def from_mapping(cls, values: dict[str, Any]) -> "EngineConfig":
        """Raises ConfigError for a name that is no field."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ConfigError(f"unknown configuration {', '.join(unknown)}; known are {', '.join(sorted(known))}")
        return cls(**values)

    def _check_types(self) -> None:
        for name, kind in get_type_hints(type(self)).items():
            value = getattr(self, name)
            optional = isinstance(kind, UnionType)
            if optional and value is None:
                continue
            wanted = next(one for one in get_args(kind) if one is not NoneType) if optional else kind
            # A whole number is a number, but true and false are none.
            accepted = (int, float) if wanted is float else wanted
            if not isinstance(value, accepted) or (isinstance(value, bool) and wanted is not bool):
                raise ConfigError(f"{name} is {value!r}; it must be {_KINDS[wanted]}{' or None' if optional else ''}")

    def _one_of(self, name: str, allowed: tuple[str, ...]) -> None:
        if getattr(self, name) not in allowed:
            raise ConfigError(f"{name} is {getattr(self, name)!r}; choose one of {', '.join(allowed)}")

    def _at_least(self, name: str, minimum: int) -> None:
        if getattr(self, name) < minimum:
            raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least {minimum}")


@dataclass(frozen=True)
class ResolvedConfig:
    """The configuration on this machine: nothing left to derive but the pool, which needs the model's shape."""

    ckpt_dir: Path
    device: torch.device
    dtype: torch.dtype
    streaming: bool
    offline: bool
    num_threads: int
    chunk_size: int
    num_left_chunks: int
    max_batch_size: int
    max_batch_frames: int
    max_audio_seconds: float
    max_wait_time: float
    schedule_policy: str
    partition_policy: str
    block_size_frames: int
    max_num_blocks: int | None
    max_blocks_per_seq: int
    cache_memory_share: float
    streaming_runtime: str | None
    """A registered runtime; None: the model's own."""
    recycle_streaming_history: bool
    finalize_silence_pad: bool
    pad_batch: bool
    decode_method: str
    feature_config: FeatureSpec | None


def resolve(config: EngineConfig) -> ResolvedConfig:
    """Settles what depends on the machine. Raises ConfigError for a device or dtype that is not there."""
    if not config.ckpt_dir:
        raise ConfigError("ckpt_dir is empty; name a checkpoint directory")
    device = _device(config.device)
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
    return ResolvedConfig(
        ckpt_dir=Path(config.ckpt_dir),
        device=device,
        dtype=_dtype(config.dtype, device),
        streaming=config.service_mode != "offline",
        offline=config.service_mode != "streaming",
        num_threads=config.num_threads or available_cores(),
        chunk_size=config.chunk_size,
        num_left_chunks=config.num_left_chunks,
        max_batch_size=config.max_batch_size,
        max_batch_frames=config.max_batch_frames or 60_000,
        max_audio_seconds=config.max_audio_seconds,
        max_wait_time=config.max_wait_time,
        schedule_policy=config.schedule_policy,
        partition_policy=config.partition_policy,
        block_size_frames=config.block_size_frames,
        max_num_blocks=config.max_num_blocks,
        max_blocks_per_seq=config.max_blocks_per_seq,
        cache_memory_share=config.cache_memory_share,
        streaming_runtime=None if config.use_paged_cache else "dense",
        recycle_streaming_history=config.recycle_streaming_history,
        finalize_silence_pad=config.finalize_silence_pad,
        pad_batch=bool(config.streaming_graph_pad_batch),
        decode_method=config.decode_method,
        feature_config=config.feature_config,
    )


def _device(name: str) -> torch.device:
    if not _DEVICE.fullmatch(name):
        raise ConfigError(f"device is {name!r}; use auto, cpu, cuda or cuda:N")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, index = name.partition(":")
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device is {name!r} but this machine has {torch.cuda.device_count()} CUDA devices; use auto")
    return torch.device(name)


def _dtype(name: str, device: torch.device) -> torch.dtype:
    if name != "auto":
        dtype = _DTYPES[name]
        if dtype is torch.float16 and device.type == "cpu":
            raise ConfigError("dtype is 'float16' on a CPU, which has no fast kernels for it; use auto or float32")
        return dtype
    if device.type == "cuda":
        return torch.float16
    return torch.bfloat16 if multiplies_bfloat16() else torch.float32


def device_memory_bytes(device: torch.device) -> int:
    """Memory that a share is taken of."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return memory_bytes()
