"""Settings that all tests share."""

import sys

import pytest
from hypothesis import HealthCheck, settings

# The same examples on every machine and in every run.
settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("repeatable")


@pytest.fixture(scope="session", autouse=True)
def one_torch_thread() -> None:
    """Models in tests are too small to share out, and threads that wait for each other only spin."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
