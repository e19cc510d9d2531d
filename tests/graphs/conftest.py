"""A device whose steps are captured."""

import pytest

from tests.graphs.engines import DEVICES, Captures


@pytest.fixture(params=DEVICES)
def captures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Captures:
    return Captures(request.param, monkeypatch)
