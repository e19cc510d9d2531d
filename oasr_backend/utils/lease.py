"""A process's sign of life: a locked file, given back at an orderly end and left behind by a process that died."""

import fcntl
import os
from pathlib import Path

DIRECTORY_VARIABLE = "_OASR_LEASES"
"""Names the folder in which processes of models leave theirs; without it they leave none. For the launcher to set."""


class Lease:
    """Held from its making to `give_back`, or to the end of the process.

    The lock is the kernel's, so that it ends with the process however that dies, and no number of a process, which
    another may bear by then, has to be believed.

    Args:
        directory: where it lies; it must be there.
        name: whose it is, as messages are to call it; a name of a file.
    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._path = directory / f"{name}.{os.getpid()}"
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def give_back(self) -> None:
        """Ends it; may be called again."""
        if self._file >= 0:
            # First: a file that is there and not locked tells of a death.
            self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = -1


def take_lease(name: str) -> Lease | None:
    """A lease in the folder that the environment names, None without one."""
    directory = os.environ.get(DIRECTORY_VARIABLE)
    return Lease(Path(directory), name) if directory else None


def abandoned(directory: Path) -> list[str]:
    """Names of the leases whose processes ended without giving them back; none where the folder is gone."""
    names = []
    for path in sorted(directory.glob("*")):
        try:
            file = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # It may have been given back between the two calls, and is then no file any more.
            if os.fstat(file).st_nlink:
                names.append(path.name.rpartition(".")[0])
        except BlockingIOError:
            continue
        finally:
            os.close(file)
    return names
