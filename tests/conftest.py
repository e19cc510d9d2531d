"""Settings that all tests share."""

import sys
from collections.abc import Iterator

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
def one_thread_unless_asked() -> Iterator[None]:
    """Of engines that are not told how many: models in tests are too small to share out, and cores have workers."""
    with pytest.MonkeyPatch.context() as patch:
        # Tests of the client alone need neither this nor torch.
        if module := sys.modules.get("oasr_backend.config.resolved"):
            patch.setattr(module, "available_cores", lambda: 1)
        yield


@pytest.fixture(autouse=True)
def one_torch_thread() -> None:
    """Whatever the engine of the test before has set: threads that wait for each other only spin."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
