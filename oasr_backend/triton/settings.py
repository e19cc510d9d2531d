"""Configuration of a model with an engine: environment over config.pbtxt over defaults."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oasr_backend.audio.limits import AudioLimits
from oasr_backend.audio.rates import SAMPLE_RATE
from oasr_backend.config import EngineConfig
from oasr_backend.errors import ConfigError
from oasr_backend.triton.overrides import field_types, layered
from oasr_backend.utils.log_lines import LogSettings

# Pinned by each model's config.pbtxt.
FIXED = frozenset({"service_mode"})
# Said to all models, these are meant for the offline one; the streaming one would refuse them.
_OFFLINE_ONLY = frozenset({"enable_sequence_packing", "overlap_admit", "long_form", "preferred_batch_size"})
# And the other way round.
_STREAMING_ONLY = frozenset({"endpointing"})


@dataclass(frozen=True)
class AdapterSettings(LogSettings):
    """Knobs of the Triton side."""

    checkpoint: str = ""
    """Checkpoint directory; the engine's ckpt_dir."""
    max_sequences: int = 128
    """Live streams; one more is refused at once."""
    max_queued_seconds: float = 300.0
    """Audio of one stream that may wait to be decoded, and the longest chunk; a chunk beyond it is refused."""
    max_total_queued_seconds: float = 3600.0
    """Audio of all streams that may wait; half of it is set aside in equal shares for `max_sequences` streams."""
    max_queued_clips: int = 1024
    """Offline clips in the queue; more are refused at once."""
    max_queued_clip_seconds: float = 36000.0
    """Audio of all offline clips in the queue, and the most that one request brings; more is refused at once."""
    idle_seconds: float = 60.0
    """A stream without requests for so long is freed; must be later than Triton's own expiry."""
    cancelled_seconds: float = 1.5
    """A stream whose last request was cancelled by its gRPC client, or ran out of that client's time, is freed when no
    other follows for so long."""
    gather_ms: float = 20.0
    """The most that a step waits for requests that come together; never more than a quarter of what a step takes."""
    sender_threads: int = 4
    """Threads that send responses."""
    trace_share: float = 0.0
    """Share of the streams, from 0 to 1, of whose every chunk the log tells where its time went; beside those that ask
    for it with the option `trace`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("max_sequences", "max_queued_clips", "sender_threads"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("max_queued_seconds", "max_total_queued_seconds", "max_queued_clip_seconds"):
            if not 1 <= getattr(self, name) < math.inf:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1, and finite")
        for name in ("idle_seconds", "cancelled_seconds", "gather_ms"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be 0 or more")
        if not 0 <= self.trace_share <= 1:
            raise ConfigError(f"trace_share is {self.trace_share}; it must be from 0 to 1")


@dataclass(frozen=True)
class ModelSettings:
    """All that a model is configured with."""

    engine: EngineConfig
    adapter: AdapterSettings


def check_sample_rate(rate: int) -> None:
    """Raises ConfigError for a model that takes another rate than clients send."""
    if rate != SAMPLE_RATE:
        raise ConfigError(
            f"the checkpoint takes {rate} Hz and clients of this server send {SAMPLE_RATE} Hz; serve a checkpoint "
            "trained at that rate"
        )


def version_settings(folder: Path) -> dict[str, str]:
    """What settings.json in the folder of a model's version says, as text; nothing where there is none.

    Raises ConfigError for a file that is no JSON object.
    """
    file = folder / "settings.json"
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read as JSON ({type(error).__name__})") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{file} holds no JSON object of settings")
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in document.items()}


def load_settings(
    parameters: Mapping[str, str],
    environment: Mapping[str, str],
    scope: str,
    version: Mapping[str, str] | None = None,
) -> ModelSettings:
    """`parameters` of config.pbtxt under the environment's OASR_* variables under the settings of one version of the
    model; `scope` is `streaming` or `offline`.

    Raises ConfigError for a name that is none of ours and for a value that does not fit.
    """
    adapter_types = field_types(AdapterSettings)
    values = layered(
        parameters,
        environment,
        scope,
        {**field_types(EngineConfig), **adapter_types},
        known_elsewhere=frozenset(field_types(AudioLimits)),
        fixed=FIXED,
        meant_elsewhere=_OFFLINE_ONLY if scope == "streaming" else _STREAMING_ONLY,
        version=version,
    )
    adapter = AdapterSettings(**{name: values.pop(name) for name in adapter_types if name in values})
    values["ckpt_dir"] = values.get("ckpt_dir") or adapter.checkpoint
    if not values["ckpt_dir"]:
        raise ConfigError(
            "no checkpoint is named; set OASR_CHECKPOINT to a WeNet directory, or start with `oasr serve --checkpoint`"
        )
    if values.get("service_mode") == "streaming":
        if "max_batch_size" in values and f"OASR_{scope.upper()}_MAX_BATCH_SIZE" in environment:
            raise ConfigError("max_batch_size of the streaming model is its max_sequences; set that instead")
        # Live streams never wait: a slot for each that may be open.
        values["max_batch_size"] = adapter.max_sequences
    if scope == "streaming":
        _check_streaming(values)
    named = {*environment, *(version or {})}
    asked_for = not named.isdisjoint({"OASR_LONG_FORM", f"OASR_{scope.upper()}_LONG_FORM", "long_form"})
    if not asked_for and not _has_long_clips(values):
        values["long_form"] = False
    return ModelSettings(EngineConfig.from_mapping(values), adapter)


def _has_long_clips(values: Mapping[str, Any]) -> bool:
    """Whether a clip may be longer than a window: config.pbtxt has `long_form` for those, and asks for none."""
    longest = values.get("max_audio_seconds")
    return longest is None or longest > values.get("long_form_window_seconds", EngineConfig.long_form_window_seconds)


def _check_streaming(values: Mapping[str, Any]) -> None:
    """Refuses what a model with one answer a chunk cannot do."""
    interval = values.get("partial_decode_interval", 1)
    if interval != 1:
        raise ConfigError(
            f"partial_decode_interval is {interval} but the streaming model answers every chunk with the text so far; "
            "leave it 1"
        )
    preferred = values.get("preferred_batch_size")
    if preferred is not None:
        raise ConfigError(
            f"preferred_batch_size is {preferred} but live streams never wait for others; "
            "set OASR_OFFLINE_PREFERRED_BATCH_SIZE instead"
        )
