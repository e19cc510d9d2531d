"""What the cases share: the seed, the ledger and a server that frees abandoned streams soon."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from oasr_backend.serve import RunningServer, running_server
from oasr_backend.utils.paths import demo_checkpoint_dir
from tests.chaos.ledger import Ledger
from tests.server.conftest import tritonserver  # noqa: F401 (a fixture)
from tests.server.support import DECODE, OFFLINE, STREAMING, TRANSCRIBE, copied_repository, replace_once

_HERE = Path(__file__).parent
_LEDGER = pytest.StashKey[Ledger]()

IDLE_S = 10
"""Seconds after which a stream without requests is freed here; by default 60."""


def _is_asked_for(config: pytest.Config) -> bool:
    return any(Path(argument.partition("::")[0]).resolve().is_relative_to(_HERE) for argument in config.args)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--chaos-seed", type=int, help="repeat the run of this seed")
    parser.addoption("--chaos-json", type=Path, help="write the findings to this file")
    parser.addoption("--chaos-sequences", type=int, default=10_000, help="of the long run; slopes need some thousand")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Not among the tests of a run that has not asked for this folder by its name: they take a quarter of an hour."""
    return None if _is_asked_for(config) else True


def pytest_configure(config: pytest.Config) -> None:
    seed = config.getoption("chaos_seed")
    config.stash[_LEDGER] = Ledger(random.SystemRandom().randrange(10**6) if seed is None else seed)


def pytest_report_header(config: pytest.Config) -> str:
    return f"chaos seed: {config.stash[_LEDGER].seed}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    ledger = config.stash[_LEDGER]
    if not _is_asked_for(config):
        return
    terminalreporter.section("findings")
    for line in ledger.lines():
        terminalreporter.write_line(line)
    if path := config.getoption("chaos_json"):
        ledger.write(path)


@pytest.fixture(scope="session")
def ledger(pytestconfig: pytest.Config) -> Ledger:
    return pytestconfig.stash[_LEDGER]


@pytest.fixture
def seed(ledger: Ledger) -> int:
    print(f"seed {ledger.seed}")
    return ledger.seed


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models, whose abandoned sequences Triton forgets after 8 s instead of 30."""
    folder = tmp_path_factory.mktemp("chaos") / "models"
    copied_repository(folder, STREAMING, OFFLINE, DECODE, TRANSCRIBE)
    replace_once(folder / STREAMING / "config.pbtxt", "idle_microseconds: 30000000", "idle_microseconds: 8000000")
    return folder


@pytest.fixture(scope="session")
def server(tritonserver: None, repository: Path) -> Iterator[RunningServer]:  # noqa: F811 (the fixture above)
    environment = {"OASR_DTYPE": "float32", "OASR_STREAMING_IDLE_SECONDS": str(IDLE_S)}
    with running_server(
        demo_checkpoint_dir(),
        model_repository=repository,
        environment=environment,
        log_path=repository.parent / "server.log",
        ready_timeout_s=240,
        exit_timeout_s=5,
    ) as running:
        yield running
