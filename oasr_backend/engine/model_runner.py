"""The model with its caches: forward passes for both paths."""

from collections.abc import Sequence

import torch
from torch import Tensor

from oasr_backend.cache.attention_cache import AttentionCache, CacheGeometry, bytes_per_block
from oasr_backend.cache.history import HistoryPolicy
from oasr_backend.cache.slots import SlotPool
from oasr_backend.config import ResolvedConfig, device_memory_bytes
from oasr_backend.decode.scores import FrameScores, Needs
from oasr_backend.engine.memory import PoolSize, size_pool
from oasr_backend.engine.request import Request
from oasr_backend.graphs.ladder import pick, width_ladder
from oasr_backend.models.base import AsrModel


class ModelRunner:
    """Owns slots, pages and convolution histories; the engine sees requests only."""

    def __init__(self, model: AsrModel, config: ResolvedConfig, needs: Needs):
        self._model = model
        self._config = config
        self._needs = needs
        self._geometry = model.config.encoder.geometry
        if config.streaming:
            self._build_caches()

    def _build_caches(self) -> None:
        config, encoder = self._config, self._model.config.encoder
        self.pool_size: PoolSize = size_pool(
            streams=config.max_batch_size,
            chunk=config.chunk_size,
            left_chunks=config.num_left_chunks,
            block_size=config.block_size_frames,
            max_blocks_per_seq=config.max_blocks_per_seq,
            max_num_blocks=config.max_num_blocks,
            bytes_per_block=bytes_per_block(
                encoder.layers, config.block_size_frames, encoder.heads, encoder.head_dim, config.dtype.itemsize
            ),
            memory_budget=int(device_memory_bytes(config.device) * config.cache_memory_share),
        )
        geometry = CacheGeometry(
            layers=encoder.layers,
            num_blocks=self.pool_size.num_blocks,
            block_size=config.block_size_frames,
            heads=encoder.heads,
            head_dim=encoder.head_dim,
            dtype=config.dtype,
        )
        policy = HistoryPolicy(
            config.block_size_frames, self.pool_size.blocks_per_stream, config.recycle_streaming_history
        )
        self.slots = SlotPool(config.max_batch_size)
        self.attention = AttentionCache(geometry, policy, config.max_batch_size, config.device)
        self.convolution = self._model.convolution_cache(config.max_batch_size)
        self._widths = width_ladder(config.max_batch_size, config.pad_batch)
        # On CPU the cache ladder steps by one block.
        self._block_ladder = tuple(range(1, policy.max_blocks + 1))

    def allocate(self, request: Request) -> None:
        """Gives a stream a slot with nothing of its last user in it."""
        slot = self.slots.take()
        self.convolution.reset(slot)
        request.slot = slot

    def free(self, request: Request) -> None:
        """Takes slot and pages back; a request without them is left alone."""
        slot, request.slot = request.slot, None
        if slot is None:
            return
        try:
            self.attention.free(slot)
        finally:
            self.slots.give_back(slot)

    def reserve(self, request: Request, frames: int) -> bool:
        """Makes room for the next chunk; False at the stream's page ceiling."""
        assert request.slot is not None
        return self.attention.reserve(request.slot, request.offset, frames, request.chunk_size, request.num_left_chunks)

    def forward_chunks(self, requests: Sequence[Request], features: Tensor, frames: Sequence[int]) -> FrameScores:
        """One step of streams of equal chunk size and history, whatever their offsets.

        `features` [B, window, bins], `frames` valid new frames a row (room reserved) -> scores of [B, chunk].
        """
        first = requests[0]
        width = pick(self._widths, len(requests))
        if width > len(requests):
            features = torch.nn.functional.pad(features, (0, 0, 0, 0, 0, width - len(requests)))
        plan = self.attention.plan(
            [request.slot for request in requests if request.slot is not None],
            [request.offset for request in requests],
            frames,
            first.chunk_size,
            first.num_left_chunks,
            first.chunk_size,
            width,
            self._block_ladder,
        )
        hidden = self._model.encode_chunk(features, self.attention, self.convolution, plan)
        scores = self._model.score(hidden[: len(requests)], self._needs)
        for request, count in zip(requests, frames, strict=True):
            request.offset += count
        return scores

    def forward_clips(self, features: Tensor, frames: Sequence[int]) -> FrameScores:
        """`features` [B, T, bins] of whole clips, `frames` encoder frames a row -> scores of [B, n]."""
        lengths = torch.tensor(frames, device=self._config.device)
        return self._model.score(self._model.encode_clips(features, lengths), self._needs)
