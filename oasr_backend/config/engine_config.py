"""The configuration that a user writes, checked at construction."""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from types import NoneType
from typing import Any, get_type_hints

import torch

from oasr_backend.cache.history import UNLIMITED
from oasr_backend.config.bounds import BOUNDS
from oasr_backend.config.fields import (
    AUDIO_SCALE,
    AutoregressiveFields,
    BatchingFields,
    CacheFields,
    CheckpointFields,
    DecodingFields,
    DeviceFields,
    FeatureFields,
    GraphFields,
    OfflineFields,
    StreamingFields,
)
from oasr_backend.config.inert import INERT
from oasr_backend.config.kinds import SIZES, alternatives, in_words, is_allowed, normalised
from oasr_backend.config.machine import DTYPES
from oasr_backend.errors import ConfigError
from oasr_backend.quantization.config import QuantizationConfig

SERVICE_MODES = ("mixed", "streaming", "offline")
DECODER_TYPES = ("ctc_cuda", "ctc_wfst")
HISTORIES = ("keep", "reset")
# What has no effect without pages.
_OF_PAGES = (
    "max_num_blocks",
    "streaming_graph_batch_ladder",
    "streaming_graph_pad_batch",
    "streaming_graph_cache_growth",
    "streaming_graph_max_shapes",
)
# What has no effect when a switch is off. Shapes are padded in any case, so what they are padded to is not among it.
_OF_SWITCH = {
    "use_cuda_graphs": ("streaming_graph_max_shapes", "offline_graph_max_captures"),
    "use_offline_cuda_graphs": ("offline_graph_max_captures",),
}


@dataclass(frozen=True, kw_only=True)
class EngineConfig(
    # The fields of the last base come first.
    GraphFields,
    AutoregressiveFields,
    DecodingFields,
    OfflineFields,
    BatchingFields,
    CacheFields,
    StreamingFields,
    FeatureFields,
    DeviceFields,
    CheckpointFields,
):
    """Every knob of the engine, with its default.

    Raises ConfigError at construction for a value that is impossible in itself, contradicts another or cannot be
    honoured; what depends on the checkpoint or the machine is checked by `resolve`.
    """

    def __post_init__(self) -> None:
        self._check_types()
        self._check_values()
        self._check_effects()
        for contradiction in self._contradictions():
            raise ConfigError(contradiction)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> "EngineConfig":
        """Raises ConfigError for a name that is no field, with the name that it may stand for."""
        known = [field.name for field in fields(cls)]
        unknown = []
        for name in sorted(set(values) - set(known)):
            near = difflib.get_close_matches(name, known, n=1)
            unknown.append(f"{name}={values[name]!r}" + (f" (did you mean {near[0]}?)" if near else ""))
        if unknown:
            raise ConfigError(f"unknown setting {', '.join(unknown)}; docs/configuration.md lists all there are")
        return cls(**values)

    def _check_types(self) -> None:
        for name, annotation in get_type_hints(type(self)).items():
            value = normalised(annotation, getattr(self, name))
            object.__setattr__(self, name, value)
            if not is_allowed(annotation, value):
                raise ConfigError(f"{name} is {value!r}; it must be {in_words(annotation)}")
            kinds = alternatives(annotation)
            if value == "" and NoneType in kinds:
                raise ConfigError(f"{name} is empty; name one, or leave it None")
            if SIZES in kinds and value is not None:
                self._check_sizes(name, value)

    def _check_sizes(self, name: str, sizes: tuple[int, ...]) -> None:
        """Every tuple of numbers is one of batch sizes."""
        if not sizes or list(sizes) != sorted(set(sizes)) or sizes[0] < 1 or sizes[-1] > self.max_batch_size:
            raise ConfigError(
                f"{name} is {sizes}; it must be ascending numbers from 1 to max_batch_size, {self.max_batch_size}"
            )

    def _check_values(self) -> None:
        for name, bound in BOUNDS.items():
            value = getattr(self, name)
            if value is not None and value not in bound:
                raise ConfigError(f"{name} is {value}; it must be {bound}")
        if self.num_left_chunks < UNLIMITED:
            raise ConfigError(f"num_left_chunks is {self.num_left_chunks}; use -1 for all history, else 0 or more")
        if 0 < self.max_offline_pad_ratio < 1:
            raise ConfigError(f"max_offline_pad_ratio is {self.max_offline_pad_ratio}; it must be at least 1, or 0")
        self._one_of("service_mode", SERVICE_MODES)
        self._one_of("decoder_type", DECODER_TYPES)
        self._one_of("endpoint_history", HISTORIES)
        QuantizationConfig.parse(self.quantization)
        if isinstance(self.dtype, torch.dtype):
            self._one_of("dtype", tuple(DTYPES.values()))
        else:
            self._one_of("dtype", ("auto", *DTYPES))
        if self.fst_path is not None and self.fst_path.endswith((".img", "HLG.pt")):
            raise ConfigError(f"fst_path is {self.fst_path!r}; .img and HLG.pt are not read, name an OpenFst graph")

    def _one_of(self, name: str, allowed: tuple[object, ...]) -> None:
        if getattr(self, name) not in allowed:
            raise ConfigError(f"{name} is {getattr(self, name)!r}; choose one of {', '.join(map(str, allowed))}")

    def _check_effects(self) -> None:
        defaults = type(self)._defaults()
        for inert in INERT:
            value, accepted = getattr(self, inert.name), (defaults[inert.name], *inert.off)
            if value not in accepted:
                raise ConfigError(
                    f"{inert.name} is {value!r}, but {inert.reason}; leave it {' or '.join(map(repr, accepted))}"
                )

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        return {field.name: field.default for field in fields(cls)}

    def _contradictions(self) -> Iterator[str]:
        yield from self._offline_only()
        yield from self._of_the_cache()
        yield from self._of_batching()
        if self.ctc_decoder_config is not None and self.decode_options:
            yield "ctc_decoder_config and decode_options are both set; give the options in decode_options alone"
        for name in ("ctc_weight", "reverse_weight"):
            given = getattr(self, f"rescoring_{name}")
            if given is not None and name in self.decode_options:
                yield f"rescoring_{name} is {given:g} and decode_options has {name}, too; give it once"
        if self.endpointing and self.service_mode == "offline":
            yield "endpointing is set but service_mode 'offline' serves clips, which have no endpoints; leave it out"
        features = self.feature_config
        if features is not None and self.audio_scale not in (AUDIO_SCALE, features.audio_scale):
            yield (
                f"audio_scale is {self.audio_scale:g} but that of feature_config is {features.audio_scale:g}; "
                "give it in feature_config alone"
            )
        window, overlap = self.long_form_window_seconds, self.long_form_overlap_seconds
        if window <= 2 * overlap:
            yield (
                f"long_form_window_seconds is {window:g}, which is not more than twice long_form_overlap_seconds "
                f"{overlap:g}; raise it or lower the overlap"
            )
        if self.long_form and self.max_audio_seconds is not None and self.max_audio_seconds <= window:
            yield (
                f"max_audio_seconds is {self.max_audio_seconds:g}, so that no clip is longer than "
                f"long_form_window_seconds {window:g}; raise it, or leave long_form out"
            )

    def _offline_only(self) -> Iterator[str]:
        for name in ("enable_sequence_packing", "overlap_admit", "long_form"):
            if getattr(self, name) and self.service_mode == "streaming":
                yield f"{name} is true but service_mode 'streaming' serves no offline clips; leave it out"

    def _of_the_cache(self) -> Iterator[str]:
        pages, streams = self.max_num_blocks, self.max_batch_size
        if self.service_mode != "offline" and pages is not None and pages < streams:
            yield (
                f"max_num_blocks is {pages} but max_batch_size is {streams}, and a stream needs at least a page; "
                "raise it, or leave it None"
            )
        if not self.use_paged_cache:
            for name in _OF_PAGES:
                if getattr(self, name) not in (False, self._defaults()[name]):
                    yield (
                        f"{name} is {getattr(self, name)} but use_paged_cache is false, so that streams run one by "
                        "one and without pages; leave one of the two out"
                    )
        for switch, names in _OF_SWITCH.items():
            for name in names:
                value = getattr(self, name)
                if not getattr(self, switch) and value != self._defaults()[name]:
                    yield f"{name} is {value!r} but {switch} is false, so that nothing is captured; drop one of them"
        if self.offline_graph_max_frames < self.offline_graph_frame_granularity:
            yield (
                f"offline_graph_max_frames is {self.offline_graph_max_frames} but offline_graph_frame_granularity is "
                f"{self.offline_graph_frame_granularity}, so that nothing would be captured; raise it, or set "
                "use_offline_cuda_graphs=False"
            )
        if self.streaming_graph_batch_ladder is not None and self.streaming_graph_pad_batch is False:
            yield (
                f"streaming_graph_batch_ladder is {self.streaming_graph_batch_ladder} but streaming_graph_pad_batch "
                "is false; leave one of the two None"
            )

    def _of_batching(self) -> Iterator[str]:
        if self.enable_sequence_packing and self.partition_policy not in (None, "packing"):
            yield (
                f"partition_policy is {self.partition_policy!r} but enable_sequence_packing needs 'packing'; leave one "
                "of the two out"
            )
        if self.schedule_policy == "fcfs":
            for name, idle in (("length_bucket_ratio", (0,)), ("max_offline_pad_ratio", (0, 4))):
                if getattr(self, name) not in idle:
                    yield (
                        f"{name} is {getattr(self, name):g} but schedule_policy 'fcfs' looks at no lengths; choose "
                        "window, bucket or sjf, or leave it out"
                    )
