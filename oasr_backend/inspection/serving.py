"""What an engine would use on this machine, from its configuration."""

from collections.abc import Mapping
from typing import Any, Literal

from oasr_backend.checkpoints.base import Checkpoint
from oasr_backend.config import ResolvedConfig
from oasr_backend.engine.memory import host_budget, size_pool
from oasr_backend.engine.runtimes.paged import geometry_of
from oasr_backend.graphs.capture import captures_on
from oasr_backend.inspection.facts import GraphFacts, PoolFacts, ServiceFacts, StepFacts
from oasr_backend.models.config import WenetConfig
from oasr_backend.utils.host import memory_bytes, processor_name


def service_facts(
    config: ResolvedConfig, checkpoint: Checkpoint, mode: Literal["streaming", "offline"]
) -> ServiceFacts:
    """Raises ConfigError when the cache has no room for the streams."""
    is_cpu = config.device.type == "cpu"
    own: Mapping[str, Any] = {"batch": config.max_batch_size, "longest_seconds": config.max_audio_seconds}
    if mode == "streaming":
        own = {
            "step": _step(config, checkpoint),
            "streams": config.max_batch_size,
            "pool": planned_pool(config, checkpoint),
        }
    return ServiceFacts(
        mode=mode,
        device=str(config.device),
        processor=processor_name() if is_cpu else str(config.device),
        dtype=str(config.dtype).removeprefix("torch."),
        threads=config.num_threads,
        decode_method=config.decode_method,
        graphs=_graphs(config, mode),
        **own,
    )


def planned_pool(config: ResolvedConfig, checkpoint: Checkpoint) -> PoolFacts | None:
    """The pool as the streaming runtime will size it; None where only loading the model tells."""
    model = checkpoint.model
    paged = isinstance(model, WenetConfig) and config.streaming_runtime in (None, "paged")
    if not paged or (config.device.type != "cpu" and config.max_num_blocks is None):
        return None
    assert isinstance(model, WenetConfig)
    geometry = geometry_of(model.cache_spec, config)
    page = model.cache_spec.bytes_per_block(geometry.block_size, config.dtype.itemsize)
    size = size_pool(
        geometry,
        streams=config.max_batch_size,
        bytes_per_block=page,
        max_num_blocks=config.max_num_blocks,
        budget=lambda: host_budget(memory_bytes(), config.cache_memory_share),
    )
    return pool_facts(config, checkpoint, size.num_blocks)


def pool_facts(config: ResolvedConfig, checkpoint: Checkpoint, pages: int) -> PoolFacts | None:
    """A pool of so many pages; None for another family than WeNet's."""
    model = checkpoint.model
    if not isinstance(model, WenetConfig):
        return None
    block = geometry_of(model.cache_spec, config).block_size
    seconds = checkpoint.features.frame_shift_ms / 1000 * model.encoder.geometry.rate
    return PoolFacts(
        streams=config.max_batch_size,
        seconds=pages / config.max_batch_size * block * seconds,
        mebibytes=pages * model.cache_spec.bytes_per_block(block, config.dtype.itemsize) / (1 << 20),
    )


def _step(config: ResolvedConfig, checkpoint: Checkpoint) -> StepFacts | None:
    model, features = checkpoint.model, checkpoint.features
    if not isinstance(model, WenetConfig):
        return None
    geometry, chunk = model.encoder.geometry, config.chunk_size
    ms = geometry.stride(chunk) * features.frame_shift_ms
    return StepFacts(
        frames=chunk,
        samples=geometry.stride(chunk) * features.shift_samples,
        ms=ms,
        first_ms=(geometry.window(chunk) - 1) * features.frame_shift_ms + features.frame_length_ms,
        left_chunks=config.num_left_chunks,
    )


def _graphs(config: ResolvedConfig, mode: Literal["streaming", "offline"]) -> GraphFacts:
    if not captures_on(config.device):
        return GraphFacts(False, f"nothing is captured on {config.device.type}")
    used = config.use_cuda_graphs if mode == "streaming" else config.use_offline_cuda_graphs
    name = "use_offline_cuda_graphs" if mode == "offline" and config.use_cuda_graphs else "use_cuda_graphs"
    return GraphFacts(used, "" if used else f"{name} is false")
