"""The real server: started once for the tests of this folder, all of which carry the `server` marker."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from oasr_backend.serve import RunningServer, running_server

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker("server")


@pytest.fixture(scope="session")
def tritonserver() -> None:
    """Skips where no tritonserver is installed; every other fault of the start must fail."""
    if find_spec("pytriton") is None and not Path("/opt/tritonserver/bin/tritonserver").is_file():
        pytest.skip("no tritonserver: neither the wheel nvidia-pytriton nor /opt/tritonserver is installed")


@pytest.fixture(scope="session")
def server(tritonserver: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """The real server with the demo checkpoint in float32 and all names, for the whole session."""
    log_path = tmp_path_factory.mktemp("server") / "server.log"
    settings = {"OASR_DTYPE": "float32"}
    with running_server(environment=settings, log_path=log_path, compat_names=True, ready_timeout_s=240) as running:
        yield running
