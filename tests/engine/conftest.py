"""Engines for the tests of this folder."""

import pytest

from oasr_backend.decode.base import STRATEGIES, DecodeSetup, StrategyKind
from oasr_backend.engine import ASREngine
from tests.engine.engines import RecordingStrategy, make_engine


@pytest.fixture
def engine() -> ASREngine:
    """Four streams on a recorded checkpoint, silence pad off."""
    return make_engine()


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> RecordingStrategy:
    """What an engine with `decode_method="recording"` decodes with."""
    strategy = RecordingStrategy(DecodeSetup(0, 0))
    monkeypatch.setitem(STRATEGIES, "recording", StrategyKind(lambda setup: strategy))
    return strategy
