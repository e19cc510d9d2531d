"""Which layers of a model are quantized."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from oasr_backend.errors import ConfigError
from oasr_backend.quantization.config import DEFAULT_KINDS, QuantizationConfig

# By the module's name; the first that fits. A first convolution has nine inputs, too few to gain from anything.
_KINDS = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"encoder\.embed\.conv\.0", None),
        (r"encoder\.embed\.conv\.\d+", "conv2d"),
        (r"encoder\.embed\.(out\.0|linear)", "linear"),
        (r".*\.pointwise_conv[12]", "pointwise_conv"),
        (r"ctc\.ctc_lo|decoder\.(.*\.)?output_layer", "head"),
        (r".*\.(linear_(q|k|v|out|pos)|w_[12])", "linear"),
    )
)


def kind_of(module: str) -> str | None:
    """The kind of the layer `module`, by WeNet's names; None for one that is never quantized."""
    return next((kind for pattern, kind in _KINDS if pattern.fullmatch(module)), None)


@dataclass(frozen=True)
class QuantizationRule:
    """Says of every layer whether it is quantized."""

    kinds: frozenset[str] = frozenset()
    ignore: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: QuantizationConfig | None) -> "QuantizationRule":
        """The rule of a configuration; None covers nothing."""
        if config is None:
            return cls()
        return cls(frozenset(config.module_types or DEFAULT_KINDS), config.ignore or ())

    def covers(self, *modules: str) -> bool:
        """Whether a product is quantized that runs `modules` as one: all must be meant and none ignored."""
        return all(self._covers(module) for module in modules)

    def _covers(self, module: str) -> bool:
        return kind_of(module) in self.kinds and not any(fnmatchcase(module, glob) for glob in self.ignore)

    def check(self, weights: Iterable[str]) -> None:
        """Raises ConfigError when a glob ignores none of the layers that have `weights`, or nothing is covered."""
        modules = [module for module in map(module_of, weights) if module is not None]
        for glob in self.ignore:
            if not any(fnmatchcase(module, glob) for module in modules):
                raise ConfigError(
                    f"quantization ignores {glob!r}, which no layer's name fits; correct it or leave it out"
                )
        if self.kinds and not any(map(self.covers, modules)):
            raise ConfigError("quantization selects no layer of this model; leave it out, or choose other layers")


def module_of(weight: str) -> str | None:
    """The layer whose weight has that name in a checkpoint; None for one that is never quantized."""
    module, _, leaf = weight.rpartition(".")
    return module if leaf == "weight" and kind_of(module) is not None else None
