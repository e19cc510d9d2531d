"""The private directory of one start, and the shared-memory files that carry its name."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from oasr_backend.server.install import ServerInstall
from oasr_backend.server.interpreter import backend_utils
from oasr_backend.server.versions import has_engine, write_versions

_NEW = "oasr-new-"
_NAME = "oasr-serve-"
_SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Workspace:
    """A directory only this user can enter, locked for as long as the launcher or a process of the server lives.

    The lock is a file descriptor that the server and its stubs inherit, so that a later start can tell an abandoned
    workspace from a used one, in other containers too.
    """

    directory: Path
    lock: int

    @property
    def backend_directory(self) -> Path:
        return self.directory / "backends"

    @property
    def lease_directory(self) -> Path:
        """Where the processes of models leave their leases."""
        return self.directory / "leases"

    @property
    def shm_prefix(self) -> str:
        """Every shared-memory file of this server starts with it, and no other file does."""
        return _shm_prefix(self.directory)

    def link_backend(self, install: ServerInstall, environment: Mapping[str, str]) -> None:
        """Fills the backend directory; links, so that a temporary directory mounted noexec does not matter."""
        folder = self.backend_directory / "python"
        folder.mkdir(parents=True)
        (folder / "libtriton_python.so").symlink_to(install.backend_library)
        utils = backend_utils(install.backend_utils, environment)
        (folder / "triton_python_backend_utils.py").write_text(utils, encoding="utf-8")
        stub = folder / "triton_python_backend_stub"
        if os.access(install.stub, os.X_OK):
            stub.symlink_to(install.stub)
        else:
            shutil.copyfile(install.stub, stub)
            stub.chmod(0o700)

    def link_models(self, folders: Mapping[str, Path], versions: Mapping[int, Path]) -> Path:
        """A repository that shows these models, each lying where it may; those with an engine in these versions."""
        folder = self.directory / "models"
        folder.mkdir()
        for name, place in folders.items():
            if versions and has_engine(place):
                write_versions(place, folder / name, versions)
            else:
                (folder / name).symlink_to(place)
        return folder

    def remove(self) -> None:
        """Removes directory and shared-memory files; call it when no process of the server is left."""
        _remove(self.directory)
        with contextlib.suppress(OSError):
            os.close(self.lock)


def create_workspace(parent: Path | None = None) -> Workspace:
    """Makes a fresh workspace (mode 0700), after removing abandoned ones of this user."""
    parent = parent or Path(tempfile.gettempdir())
    sweep(parent)
    # Renamed once locked: a sweep never sees a workspace that is not locked yet.
    new = Path(tempfile.mkdtemp(prefix=_NEW, dir=parent))
    lock = os.open(new / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    (new / "leases").mkdir()
    return Workspace(new.rename(parent / new.name.replace(_NEW, _NAME, 1)), lock)


def sweep(parent: Path) -> None:
    """Removes what starts that were killed have left: workspaces of this user that no process holds."""
    for directory in parent.glob(f"{_NAME}*"):
        try:
            if directory.is_symlink() or directory.stat().st_uid != os.getuid():
                continue
            lock = os.open(directory / "lock", os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(directory)
        except OSError:
            continue
        finally:
            os.close(lock)


def shared_memory_files(prefix: str) -> list[Path]:
    return sorted(_SHARED_MEMORY.glob(f"{prefix}*"))


def _shm_prefix(directory: Path) -> str:
    return f"oasr_{directory.name.removeprefix(_NAME)}_"


def _remove(directory: Path) -> None:
    for path in shared_memory_files(_shm_prefix(directory)):
        path.unlink(missing_ok=True)
    shutil.rmtree(directory, ignore_errors=True)
