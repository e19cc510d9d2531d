"""The decode strategies of one engine, by name, built when they are first asked for."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from oasr_backend.decode.base import STRATEGIES, DecodeSetup, DecodeStrategy, build_strategy, strategy_options
from oasr_backend.errors import ConfigError, OptionError


class Decoders:
    """The configured method is the default; a request may choose another that the model can be decoded with."""

    def __init__(self, default: str, setup: DecodeSetup, options: Mapping[str, Any], shared: Mapping[str, Any]):
        """`options` are the default method's, which must know them all; of these and of `shared`, which are for any
        method, the others take those that they know. Raises ConfigError.
        """
        self.default = default
        self._setup = setup
        self._shared = {**shared, **options}
        own = {**self._known(default, shared), **options}
        self._strategies = {default: build_strategy(default, self._setup_of(default, own))}

    def get(self, name: str | None) -> DecodeStrategy:
        """The strategy of that name, the default's for None. Raises OptionError for one that cannot be used."""
        name = name or self.default
        if name not in self._strategies:
            try:
                known = self._known(name, self._shared)
                self._strategies[name] = build_strategy(name, self._setup_of(name, known))
            except ConfigError as error:
                raise OptionError(str(error)) from error
        return self._strategies[name]

    @staticmethod
    def _known(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        known = {field.name for field in fields(STRATEGIES[name].options)} if name in STRATEGIES else set()
        return {key: value for key, value in options.items() if key in known}

    def _setup_of(self, name: str, options: Mapping[str, Any]) -> DecodeSetup:
        return replace(self._setup, options=strategy_options(name, options))
