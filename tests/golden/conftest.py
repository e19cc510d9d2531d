"""Every golden test runs over every recorded checkpoint."""

import pytest

from tests.golden.cases import CASES, STREAMED, GoldenCase


@pytest.fixture(scope="session", params=CASES)
def case(request: pytest.FixtureRequest) -> GoldenCase:
    return GoldenCase(request.param)


@pytest.fixture(scope="session", params=STREAMED)
def streamed(request: pytest.FixtureRequest) -> GoldenCase:
    """Those that WeNet streamed."""
    return GoldenCase(request.param)
