"""What a user asks of quantization, or a checkpoint carries."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oasr_backend.errors import ConfigError

INT8 = "int8_w8a8"
SCHEMES = (INT8,)
LAYER_KINDS = ("linear", "pointwise_conv", "conv2d", "head")
DEFAULT_KINDS = ("linear", "pointwise_conv")
# Their weights are laid out anew, so that a checkpoint must carry them.
CHECKPOINT_KINDS = ("conv2d",)
_FIELDS = ("scheme", "ignore", "module_types", "kv_cache")


@dataclass(frozen=True)
class QuantizationConfig:
    """A scheme and the layers that it is for."""

    scheme: str
    ignore: tuple[str, ...] | None = None
    """Globs of module names that stay as they are; None: none were named."""
    module_types: tuple[str, ...] | None = None
    """Kinds of layers; None: `DEFAULT_KINDS`."""

    @classmethod
    def parse(cls, asked: str | Mapping[str, Any] | None) -> "QuantizationConfig | None":
        """The setting `quantization`, None where it asks for nothing. Raises ConfigError."""
        if asked is None:
            return None
        options = {"scheme": asked} if isinstance(asked, str) else dict(asked)
        unknown = sorted(set(options) - set(_FIELDS))
        if unknown:
            raise ConfigError(f"quantization is {asked!r}; {unknown[0]} is none of {', '.join(_FIELDS)}")
        if options.get("kv_cache") is not None:
            raise ConfigError(
                f"quantization is {asked!r}, but no decode family with a KV cache is installed; leave kv_cache out"
            )
        scheme = options.get("scheme")
        ignore, module_types = (_names(asked, name, options.get(name)) for name in ("ignore", "module_types"))
        if scheme is None:
            if ignore is not None or module_types is not None:
                raise ConfigError(
                    f"quantization is {asked!r}; ignore and module_types select layers for a scheme: name it, or leave "
                    "them out"
                )
            return None
        if scheme not in SCHEMES:
            raise ConfigError(f"quantization is {asked!r}; scheme must be one of {', '.join(SCHEMES)}")
        for kind in module_types or ():
            if kind not in LAYER_KINDS:
                raise ConfigError(f"quantization is {asked!r}; module_types must be of {', '.join(LAYER_KINDS)}")
        return cls(scheme, ignore, module_types)

    def check_online(self) -> None:
        """Raises ConfigError for a kind that only a checkpoint can bring."""
        for kind in self.module_types or ():
            if kind in CHECKPOINT_KINDS:
                raise ConfigError(
                    f"quantization has module_types {','.join(self.module_types or ())!r}, but a checkpoint must bring "
                    f"{kind}: write one with `oasr quantize`, or leave {kind} out"
                )


def combined(asked: QuantizationConfig | None, carried: QuantizationConfig | None) -> QuantizationConfig | None:
    """What is served when the user asks for `asked` and the checkpoint carries `carried`.

    Raises ConfigError where the two cannot both be honoured.
    """
    if asked is None:
        return carried
    if carried is None:
        asked.check_online()
        return asked
    if asked.scheme != carried.scheme:
        raise ConfigError(
            f"quantization is {asked.scheme!r} but the checkpoint was written with {carried.scheme!r}; leave it out"
        )
    for name in ("ignore", "module_types"):
        if getattr(asked, name) is not None:
            raise ConfigError(
                f"quantization has {name}, but the checkpoint was written quantized and its layers are chosen; leave "
                f"{name} out, or quantize the original checkpoint"
            )
    return carried


def _names(asked: object, name: str, value: object) -> tuple[str, ...] | None:
    """Comma-separated text, or a list of texts."""
    if value is None:
        return None
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ConfigError(f"quantization is {asked!r}; {name} must be text like a,b")
    names = tuple(part.strip() for part in parts if part.strip())
    if not names:
        raise ConfigError(f"quantization is {asked!r}; {name} is empty: leave it out")
    return names
