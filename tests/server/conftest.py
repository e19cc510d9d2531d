"""The real server: started once a worker for the tests of this folder, all of which carry the `server` marker."""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from oasr_backend.serve import RunningServer, running_server
from oasr_backend.server import ports
from tests.server.received import ReceivedResults
from tests.server.support import OFFLINE, SMALL_LIMIT, STREAMING

_HERE = Path(__file__).parent
_SHARED = {"server", "small_server"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if _HERE in item.path.parents]
    sharing = set()
    for item in here:
        item.add_marker("server")
        if _SHARED & set(getattr(item, "fixturenames", ())):
            sharing.add(item.path)
    # Files with servers of their own take long and come first, so that workers come to an end together.
    ordered = iter(sorted(here, key=lambda item: item.path in sharing))
    items[:] = [next(ordered) if _HERE in item.path.parents else item for item in items]


@pytest.fixture(scope="session", autouse=True)
def ports_of_this_worker() -> Iterator[None]:
    """Workers start servers at the same time, and again on the ports of one that has ended: no two pick the same."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ports, "_PICKED", ports._PICKED[number::workers])
        yield


@pytest.fixture(scope="session")
def received_results() -> Iterator[ReceivedResults]:
    received = ReceivedResults()
    with received.watching():
        yield received


@pytest.fixture(autouse=True)
def every_result_follows_the_schema(received_results: ReceivedResults) -> Iterator[None]:
    """Of all documents that a test receives, asked for or not looked at."""
    received_results.errors.clear()
    yield
    assert not received_results.errors


@pytest.fixture(scope="session")
def tritonserver() -> None:
    """Skips where no tritonserver is installed; every other fault of the start must fail."""
    if find_spec("pytriton") is None and not Path("/opt/tritonserver/bin/tritonserver").is_file():
        pytest.skip("no tritonserver: neither the wheel nvidia-pytriton nor /opt/tritonserver is installed")


@pytest.fixture(scope="session")
def server(tritonserver: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """The real server with the demo checkpoint in float32 and all names, for the whole session."""
    log_path = tmp_path_factory.mktemp("server") / "server.log"
    # What several models read, each of them must understand.
    settings = {"OASR_DTYPE": "float32", "OASR_MAX_AUDIO_SECONDS": "none"}
    with running_server(environment=settings, log_path=log_path, compat_names=True, ready_timeout_s=240) as running:
        yield running


@pytest.fixture(scope="session")
def small_server(tritonserver: None) -> Iterator[RunningServer]:
    """One whose limits are easily met: of streams and clips, of audio that waits, of a stream's pages."""
    environment = {
        "OASR_DTYPE": "float32",
        "OASR_STREAMING_MAX_QUEUED_SECONDS": "20",
        "OASR_STREAMING_MAX_TOTAL_QUEUED_SECONDS": "60",
        # 41 s, at which a stream ends.
        "OASR_STREAMING_MAX_BLOCKS_PER_SEQ": "64",
        "OASR_STREAMING_RECYCLE_STREAMING_HISTORY": "false",
        # A clip a step, so that others wait.
        "OASR_OFFLINE_MAX_BATCH_SIZE": "1",
        "OASR_OFFLINE_MAX_QUEUED_CLIPS": "4",
        "OASR_OFFLINE_MAX_QUEUED_CLIP_SECONDS": "100",
        "OASR_OFFLINE_MAX_AUDIO_SECONDS": "50",
    }
    with running_server(
        models=(STREAMING, OFFLINE),
        max_sequences=SMALL_LIMIT,
        environment=environment,
        ready_timeout_s=240,
        exit_timeout_s=2,
    ) as running:
        yield running
