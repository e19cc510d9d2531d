"""What a request may ask of its decoding; what cannot be honoured is rejected, never ignored."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, cast

from oasr_backend.decode.base import DecodeStrategy
from oasr_backend.decode.endpoint import EndpointRule
from oasr_backend.errors import OptionError
from oasr_backend.utils.numbers import is_number
from oasr_backend.utils.shown import is_text, listed, shown

# Options of autoregressive families, at the values that mean "not asked for".
_AUTOREGRESSIVE: dict[str, Any] = {
    "max_new_tokens": None,
    "temperature": 0.0,
    "top_k": 0,
    "top_p": 1.0,
    "prompt": None,
    "task": None,
    "language": None,
}
HISTORIES = ("keep", "reset")
# More would make every frame's search slow for everybody in the batch.
MAX_HOTWORDS = 500
MAX_PHRASE_CHARACTERS = 200
# What leaves a rule out.
_NEVER = math.inf


@dataclass(frozen=True)
class Hotword:
    """A phrase to listen for; `score` is what each of its tokens adds, None: the request's `hotword_score`."""

    phrase: str
    score: float | None = None


@dataclass(frozen=True)
class EndpointDefaults:
    """What streams do that do not say."""

    endpointing: bool = False
    rule: EndpointRule = EndpointRule()  # noqa: RUF009 (frozen)
    history: str = "keep"


@dataclass(frozen=True)
class DecodingOptions:
    """Per-request knobs. Raises OptionError at construction for a value that is impossible in itself."""

    decode_method: str | None = None
    """A registered decode strategy that the model can be decoded with; None: the engine's."""
    two_pass: bool = False
    """Partial results by the first pass, final ones rescored: `decode_method` attention_rescoring."""
    n_best: int = 1
    """Hypotheses in the final output."""
    word_timestamps: bool = False
    """Words with times and confidences."""
    hotwords: Any = ()
    """Phrases to listen for: texts, or objects of `phrase` and `score`; a JSON list of them as text, too."""
    hotword_score: float = 1.0
    """What every token of a phrase without a score of its own adds (natural logarithm)."""
    endpointing: bool | None = None
    """Whether pauses make what was said final while the stream goes on; None: as the engine is configured."""
    endpoint_silence_ms: float | None = None
    """Silence after speech that ends a segment; None: as configured."""
    endpoint_start_ms: float | None = None
    """Silence with no speech before it that ends a segment."""
    endpoint_max_ms: float | None = None
    """The longest segment."""
    endpoint_history: str | None = None
    """`keep`: the encoder goes on seeing what was before an endpoint; `reset`: it begins anew."""
    vad_events: bool = False
    """Where speech began and ended."""
    partials: bool = True
    """Whether outputs before the last tell of what is not final yet; False: of final segments alone."""
    max_new_tokens: int | None = None
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    prompt: str | None = None
    task: str | None = None
    language: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.n_best, bool) or not isinstance(self.n_best, int) or self.n_best < 1:
            raise OptionError(f"n_best is {shown(self.n_best)}; it must be a whole number of at least 1")
        for name in ("word_timestamps", "two_pass", "vad_events", "partials"):
            if not isinstance(getattr(self, name), bool):
                raise OptionError(f"{name} is {shown(getattr(self, name))}; it must be true or false")
        if self.endpointing is not None and not isinstance(self.endpointing, bool):
            raise OptionError(f"endpointing is {shown(self.endpointing)}; it must be true, false or None")
        if self.decode_method is not None and not (isinstance(self.decode_method, str) and self.decode_method):
            raise OptionError(f"decode_method is {shown(self.decode_method)}; it must be the name of a method")
        if self.two_pass and self.decode_method not in (None, "attention_rescoring"):
            raise OptionError(
                f"two_pass is set and decode_method is {shown(self.decode_method)}; leave one of them out"
            )
        if not is_number(self.hotword_score) or not 0 < self.hotword_score <= 100:
            raise OptionError(f"hotword_score is {shown(self.hotword_score)}; it must be above 0 and at most 100")
        for name in ("endpoint_silence_ms", "endpoint_start_ms", "endpoint_max_ms"):
            value = getattr(self, name)
            if value is not None and not (is_number(value) and 40 <= value <= 3_600_000):
                raise OptionError(f"{name} is {shown(value)}; it must be from 40 to 3600000 milliseconds")
        if self.endpoint_history not in (None, *HISTORIES):
            raise OptionError(
                f"endpoint_history is {shown(self.endpoint_history)}; choose one of {', '.join(HISTORIES)}"
            )
        object.__setattr__(self, "hotwords", _hotwords(self.hotwords))

    @property
    def phrases(self) -> tuple[Hotword, ...]:
        """The hotwords, whatever form they came in."""
        return cast(tuple[Hotword, ...], self.hotwords)

    @classmethod
    def coerce(cls, options: "DecodingOptions | Mapping[str, Any] | None") -> "DecodingOptions":
        """Options from what a caller may pass. Raises OptionError for a name that is no option."""
        if options is None:
            return cls()
        if isinstance(options, cls):
            return options
        if not isinstance(options, Mapping):
            raise OptionError(f"decoding is {shown(options)}; pass DecodingOptions or a mapping of their fields")
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise OptionError(f"unknown decoding option {listed(unknown)}; valid are {', '.join(known)}")
        return cls(**options)

    @property
    def method(self) -> str | None:
        """The decode method asked for; None: the engine's."""
        return "attention_rescoring" if self.two_pass else self.decode_method

    def endpoints(self, defaults: EndpointDefaults) -> bool:
        """Whether segments end at pauses."""
        return defaults.endpointing if self.endpointing is None else self.endpointing

    def endpoint_rule(self, defaults: EndpointDefaults) -> EndpointRule:
        """When a segment ends; without endpointing, when speech does."""
        rule = defaults.rule

        def seconds(given: float | None, default: float) -> float:
            return default if given is None else given / 1000

        silence = seconds(self.endpoint_silence_ms, rule.silence_seconds)
        if not self.endpoints(defaults):
            return EndpointRule(_NEVER, silence, _NEVER)
        return EndpointRule(
            seconds(self.endpoint_start_ms, rule.start_seconds),
            silence,
            seconds(self.endpoint_max_ms, rule.max_seconds),
        )

    def resets_history(self, defaults: EndpointDefaults) -> bool:
        return (self.endpoint_history or defaults.history) == "reset"

    def check(self, strategy: DecodeStrategy, streaming: bool, defaults: EndpointDefaults) -> None:
        """Raises OptionError for an option that the loaded model, decode method and kind of request cannot honour."""
        for name, default in _AUTOREGRESSIVE.items():
            if getattr(self, name) != default:
                value = shown(getattr(self, name))
                raise OptionError(f"{name} is {value}, but no autoregressive decode family is installed; leave it out")
        if self.n_best > strategy.max_n_best:
            raise OptionError(
                f"n_best is {shown(self.n_best)}, but this decode method gives {strategy.max_n_best}; ask for no more"
            )
        if self.word_timestamps and not strategy.times_tokens:
            raise OptionError("word_timestamps is set, but this model cannot time its words; leave it out")
        if self.hotwords and not strategy.biases:
            raise OptionError(
                "hotwords are set, but this decode method cannot honour them; choose decode_method ctc_prefix_beam"
            )
        of_endpoints = [
            name
            for name in ("endpoint_start_ms", "endpoint_max_ms", "endpoint_history", "endpoint_silence_ms")
            if getattr(self, name) is not None
        ]
        if not streaming:
            for name in [*of_endpoints, *(name for name in ("endpointing", "vad_events") if getattr(self, name))]:
                raise OptionError(f"{name} is set, but a clip has no endpoints; leave it out, or stream the clip")
            if not self.partials:
                raise OptionError("partials is false, but a clip has no partial results; leave it out")
        elif not self.endpoints(defaults):
            given = [name for name in of_endpoints if not (name == "endpoint_silence_ms" and self.vad_events)]
            if given:
                raise OptionError(f"{given[0]} is set, but endpointing is off; set endpointing, or leave it out")


def _hotwords(given: object) -> tuple[Hotword, ...]:
    """Phrases in whatever form they came. Raises OptionError."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else error
            raise OptionError(f'hotwords is no JSON list ({reason}); send ["phrase", ...]') from error
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise OptionError(f"hotwords is {shown(given)}; it must be a list of phrases")
    if len(given) > MAX_HOTWORDS:
        raise OptionError(f"hotwords holds {len(given)} phrases; {MAX_HOTWORDS} at most")
    return tuple(map(_hotword, given))


def _hotword(given: object) -> Hotword:
    if isinstance(given, Mapping):
        unknown = sorted(set(given) - {"phrase", "score"})
        if unknown or "phrase" not in given:
            raise OptionError(f"a hotword is {shown(dict(given))}; it must be an object of phrase and score")
        given = Hotword(given["phrase"], given.get("score"))
    elif isinstance(given, str):
        given = Hotword(given)
    if not isinstance(given, Hotword):
        raise OptionError(f"a hotword is {shown(given)}; it must be a text, or an object of phrase and score")
    if not isinstance(given.phrase, str) or not given.phrase.strip():
        raise OptionError(f"a hotword's phrase is {shown(given.phrase)}; it must be a text that is not empty")
    if len(given.phrase) > MAX_PHRASE_CHARACTERS:
        raise OptionError(f"a hotword has {len(given.phrase)} characters; {MAX_PHRASE_CHARACTERS} at most")
    if not is_text(given.phrase):
        raise OptionError(f"a hotword's phrase is {shown(given.phrase)}; it holds half of a character, send whole ones")
    if given.score is not None and not (is_number(given.score) and 0 < given.score <= 100):
        raise OptionError(
            f"the score of hotword {shown(given.phrase)} is {shown(given.score)}; it must be above 0, 100 at most"
        )
    return given
