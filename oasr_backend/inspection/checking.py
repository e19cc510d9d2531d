"""A checkpoint loaded as a server loads it, to be looked at and tried."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oasr_backend.config import EngineConfig, resolve
from oasr_backend.engine import ASREngine
from oasr_backend.engine.loading import open_checkpoint
from oasr_backend.inspection.facts import CheckpointFacts, ServiceFacts
from oasr_backend.inspection.reading import checkpoint_facts
from oasr_backend.inspection.serving import pool_facts, service_facts
from oasr_backend.inspection.trial import Trial, decode
from oasr_backend.tokenizers.base import build_tokenizer


@dataclass(frozen=True)
class Check:
    """What was found and is used, and the engine, every weight accounted for."""

    checkpoint: CheckpointFacts
    services: tuple[ServiceFacts, ...]
    engine: ASREngine

    def warm_up(self) -> None:
        """Decodes noise both ways, so that the first file is not timed while kernels are built."""
        rate = self.engine.sample_rate
        decode(self.engine, (np.random.default_rng(0).standard_normal(2 * rate) * 0.01).astype(np.float32), {})

    def decode(self, samples: np.ndarray, decoding: Mapping[str, Any]) -> Trial:
        """As `trial.decode`."""
        return decode(self.engine, samples, decoding)


def open_check(ckpt_dir: str, **settings: Any) -> Check:
    """Loads an engine for streams, where the model has them, and clips of any length; `settings` are fields of
    EngineConfig. Raises CheckpointError or ConfigError.
    """
    asked = EngineConfig(ckpt_dir=ckpt_dir, recycle_streaming_history=True, long_form=True, **settings)
    engine = ASREngine(asked)
    config, checkpoint = engine.config, open_checkpoint(resolve(asked))
    # How many clips make a batch is the server's to say.
    services = [replace(service_facts(config, checkpoint, "offline"), batch=None)]
    if config.streaming:
        # Of what was allocated, which on a GPU is known only now.
        pages = int(engine.metrics_snapshot().gauges["engine_kv_blocks_capacity"])
        pool = pool_facts(config, checkpoint, pages)
        services.insert(0, replace(service_facts(config, checkpoint, "streaming"), pool=pool))
    tokenizer = build_tokenizer(checkpoint.tokenizer, checkpoint.model.vocab_size)
    return Check(checkpoint_facts(checkpoint, tokenizer), tuple(services), engine)
