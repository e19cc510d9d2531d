"""A checkpoint seen through: every check that serving it makes, without an engine."""

from dataclasses import dataclass
from typing import Literal

import torch

from oasr_backend.checkpoints.base import Checkpoint
from oasr_backend.config import EngineConfig, ResolvedConfig, resolve
from oasr_backend.decode.base import Rescorer
from oasr_backend.engine.loading import make_decoders, open_checkpoint, require_chunks
from oasr_backend.inspection.facts import CheckpointFacts, ServiceFacts
from oasr_backend.inspection.reading import checkpoint_facts
from oasr_backend.inspection.serving import service_facts
from oasr_backend.models.base import build_model
from oasr_backend.tokenizers.base import build_tokenizer

_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Examination:
    """What was found, and what an engine of that configuration would use."""

    checkpoint: CheckpointFacts
    service: ServiceFacts


class Examiner:
    """Examines the checkpoints of several services; weights that they share are read once."""

    def __init__(self) -> None:
        self._rescorers: dict[object, Rescorer | None] = {}

    def examine(self, engine: EngineConfig) -> Examination:
        """Raises CheckpointError or ConfigError for what an engine of that configuration would refuse.

        Weights are read on the CPU as float32, whatever the device: that is quicker than preparing to read their
        shapes alone, and a damaged file shows.
        """
        config = resolve(engine)
        checkpoint = open_checkpoint(config)
        mode: Literal["streaming", "offline"] = "offline" if engine.service_mode == "offline" else "streaming"
        if mode == "streaming":
            require_chunks(checkpoint)
        tokenizer = build_tokenizer(checkpoint.tokenizer, checkpoint.model.vocab_size)
        make_decoders(config, checkpoint, self._rescorer(config, checkpoint))
        return Examination(checkpoint_facts(checkpoint, tokenizer), service_facts(config, checkpoint, mode))

    def _rescorer(self, config: ResolvedConfig, checkpoint: Checkpoint) -> Rescorer | None:
        """That of the model, which is built for it and so has every weight accounted for."""
        key = (checkpoint.path, checkpoint.weights_name, config.architecture, checkpoint.quantization)
        if key not in self._rescorers:
            with torch.inference_mode():
                self._rescorers[key] = build_model(checkpoint, _CPU, torch.float32).rescorer
        return self._rescorers[key]
