"""What a user may ask of the launcher, and the checks that need no server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from oasr_backend.checkpoints.hub import checkpoint_dir
from oasr_backend.errors import CheckpointError
from oasr_backend.server.access import Access
from oasr_backend.server.errors import LaunchError, Refused
from oasr_backend.server.tls import TlsFiles
from oasr_backend.utils.paths import model_repository_dir

_CHECKPOINT_FILES = (("train.yaml",), ("final.pt",), ("units.txt", "words.txt"))
ADMIN_TOKEN_VARIABLE = "OASR_ADMIN_TOKEN"
_BUNDLE_FILES = (("oasr_config.json",), ("model.safetensors",))


@dataclass(frozen=True)
class ServeOptions:
    """How to start the server; port 0 picks a free one, None leaves the choice to the default named beside it."""

    checkpoint: Path | None = None  # OASR_CHECKPOINT; else, with our repository, the bundled demo
    http_port: int = 8000
    grpc_port: int = 8001
    metrics_port: int = 8002
    versions: Mapping[int, Path] = field(default_factory=dict)  # checkpoints of model versions, instead of one
    host: str = "127.0.0.1"
    http_host: str | None = None  # the host; with TLS 127.0.0.1, because Triton's HTTP has none
    metrics_host: str | None = None  # the host
    access: Access = field(default_factory=Access)
    tls: TlsFiles | None = None  # of the gRPC port
    max_request_mib: int | None = None  # body of an HTTP request; 1024 where this tritonserver can limit it
    model_repository: Path | None = None  # the repository of this distribution
    models: tuple[str, ...] | None = None  # every model of the repository
    compat_names: bool = False  # also streaming_wenet and attention_rescoring
    num_threads: int | None = None  # the cores this process may use
    max_sequences: int | None = None  # the engine's own default
    environment: Mapping[str, str] = field(default_factory=dict)  # full variable names; stronger than os.environ
    exit_timeout_s: int = 40
    ready_timeout_s: float = 180.0
    self_test: bool = True
    self_test_timeout_s: float = 60.0
    log_path: Path | None = None  # a file in the private directory of this start
    log_verbose: int = 0
    server_arguments: tuple[str, ...] = ()  # passed to tritonserver as they are


def check_checkpoint(checkpoint: str, weights_name: str | None = None) -> Path:
    """Returns the absolute path of a checkpoint, links kept, that of a Hub id after fetching it.

    `weights_name` replaces final.pt. Raises Refused naming the first file a checkpoint needs and lacks.
    """
    try:
        directory = checkpoint_dir(checkpoint)
    except CheckpointError as error:
        raise Refused(str(error)) from None
    if not directory.is_dir():
        raise Refused(f"checkpoint directory {directory} does not exist; name a WeNet checkpoint with --checkpoint")
    is_bundle = (directory / "oasr_config.json").is_file()
    for files in _BUNDLE_FILES if is_bundle else _CHECKPOINT_FILES:
        names = (weights_name,) if weights_name and files == ("final.pt",) else files
        if not any((directory / name).is_file() for name in names):
            raise Refused(
                f"checkpoint directory {directory} lacks {' or '.join(names)}; "
                "a WeNet checkpoint holds train.yaml, final.pt and units.txt"
            )
    return directory.absolute()


def find_models(repository: Path | None, chosen: Sequence[str] | None) -> tuple[Path, tuple[str, ...]]:
    """Returns the repository and the names of the models to serve; raises LaunchError when one is not there."""
    try:
        root = (repository or model_repository_dir()).resolve()
    except FileNotFoundError as error:
        raise LaunchError(str(error)) from None
    if not root.is_dir():
        raise LaunchError(f"model repository {root} does not exist; name one with --model-repository")
    present = tuple(sorted(path.parent.name for path in root.glob("*/config.pbtxt")))
    if not present:
        raise LaunchError(f"model repository {root} holds no model (no */config.pbtxt); name another")
    unknown = [name for name in chosen or () if name not in present]
    if unknown:
        raise LaunchError(
            f"model repository {root} has no model {', '.join(unknown)}; choose --models among {', '.join(present)}"
        )
    return root, tuple(chosen) if chosen else present
