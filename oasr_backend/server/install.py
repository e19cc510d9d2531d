"""Finding a tritonserver: binary, Python backend, the stub of this interpreter and the libraries they link."""

import ctypes.util
import importlib.util
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from oasr_backend.server.errors import LaunchError

BINARY_VARIABLE = "OASR_TRITONSERVER"
_SYSTEM_BINARY = Path("/opt/tritonserver/bin/tritonserver")
_REQUEST_LIMIT = "http-max-input-size"
# What the largest clip of the defaults takes: four hours of float32.
_LARGEST_REQUEST_MIB = 1024
_STUB = "triton_python_backend_stub"


@dataclass(frozen=True)
class ServerInstall:
    """What is needed of one tritonserver; every path exists."""

    binary: Path
    backend_library: Path
    backend_utils: Path
    stub: Path
    library_dirs: tuple[Path, ...]


def find_server(environment: Mapping[str, str], system_binary: Path = _SYSTEM_BINARY) -> ServerInstall:
    """The binary that OASR_TRITONSERVER names, else the container image's, else that of the nvidia-pytriton wheel."""
    named = environment.get(BINARY_VARIABLE)
    if named and not Path(named).is_file():
        raise LaunchError(f"{BINARY_VARIABLE} names {named}, which is no file; unset it or name a tritonserver binary")
    binary = Path(named).resolve() if named else system_binary if system_binary.is_file() else _wheel_binary()
    inherited = [Path(entry) for entry in environment.get("LD_LIBRARY_PATH", "").split(os.pathsep) if entry]
    return inspect_server(binary, (*libpython_dirs(), *inherited))


def inspect_server(
    binary: Path,
    library_dirs: Iterable[Path],
    version: tuple[int, int] = sys.version_info[:2],
    loader_knows: Callable[[str], bool] | None = None,
) -> ServerInstall:
    """Looks around the binary, in the layout of the container image or of the wheel.

    Raises LaunchError when a part is missing, or serves another Python than `version`.
    """
    if not os.access(binary, os.X_OK):
        raise LaunchError(f"{binary} is not executable; reinstall it, or run: chmod +x {binary}")
    root = binary.parent.parent
    backend = root / "backends" / "python"
    for name in ("libtriton_python.so", "triton_python_backend_utils.py"):
        if not (backend / name).is_file():
            raise LaunchError(f"{backend} lacks {name}; use a tritonserver that includes the Python backend")
    stub = _find_stub(root, version)
    own_libraries = [path for path in (root.parent.parent / "nvidia_pytriton.libs", root / "lib") if path.is_dir()]
    libpython = find_libpython(version, library_dirs, loader_knows or _loader_knows)
    return ServerInstall(
        binary=binary,
        backend_library=backend / "libtriton_python.so",
        backend_utils=backend / "triton_python_backend_utils.py",
        stub=stub,
        library_dirs=(*own_libraries, *([libpython] if libpython else [])),
    )


def request_limit_arguments(install: ServerInstall, mebibytes: int | None) -> list[str]:
    """The argument that limits the body of an HTTP request; none for a release that has no such limit.

    Raises LaunchError for a limit that is asked for and cannot be kept.
    """
    # Releases that have it refuse more than 64 MiB by default, less than a file may have.
    if _REQUEST_LIMIT.encode() in install.binary.read_bytes():
        return [f"--{_REQUEST_LIMIT}={(mebibytes or _LARGEST_REQUEST_MIB) << 20}"]
    if mebibytes is not None:
        raise LaunchError(
            "--max-request-mib is set and this tritonserver cannot limit requests; leave it out and let a proxy limit "
            "them, or use a later release"
        )
    return []


def find_libpython(
    version: tuple[int, int], directories: Iterable[Path], loader_knows: Callable[[str], bool]
) -> Path | None:
    """The directory that holds the interpreter's shared library; None when the loader finds it unaided.

    Raises LaunchError naming the package to install when there is none: the stub links it.
    """
    name = f"libpython{version[0]}.{version[1]}"
    for directory in directories:
        if (directory / f"{name}.so.1.0").is_file():
            return directory
    if loader_knows(name):
        return None
    raise LaunchError(
        f"this Python has no shared library {name}.so.1.0, which Triton's Python backend links; "
        f"install the package {name} (Debian, Ubuntu), or use a Python built with --enable-shared"
    )


def libpython_dirs() -> tuple[Path, ...]:
    """Where this interpreter may keep its shared library."""
    libdir = sysconfig.get_config_var("LIBDIR")
    multiarch = sysconfig.get_config_var("MULTIARCH")
    found = [Path(libdir)] if libdir else []
    if libdir and multiarch:
        found.append(Path(libdir) / multiarch)
    return (*found, Path(sys.base_prefix) / "lib")


def _loader_knows(name: str) -> bool:
    return ctypes.util.find_library(name.removeprefix("lib")) is not None


def _wheel_binary() -> Path:
    """The binary in the pytriton package, found without importing it: that takes a second and needs more packages."""
    spec = importlib.util.find_spec("pytriton")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        binary = Path(folder) / "tritonserver" / "bin" / "tritonserver"
        if binary.is_file():
            return binary
    if sys.version_info >= (3, 13):
        raise LaunchError(_unsupported(sys.version_info[:2]))
    raise LaunchError(
        'no tritonserver found: install the server extra with pip install "oasr-triton[server]", '
        f"or set {BINARY_VARIABLE} to a tritonserver binary"
    )


def _find_stub(root: Path, version: tuple[int, int]) -> Path:
    number = f"{version[0]}.{version[1]}"
    of_version = root / "python_backend_stubs" / number / _STUB
    if of_version.is_file():
        return of_version
    only = root / "backends" / "python" / _STUB
    if not only.is_file():
        raise LaunchError(_unsupported(version))
    linked = re.search(rb"libpython(3\.\d+)\.so", only.read_bytes())
    if linked and linked[1].decode() != number:
        raise LaunchError(
            f"the tritonserver in {root} runs Python {linked[1].decode()} models and this is Python {number}; "
            f"start it with Python {linked[1].decode()}"
        )
    return only


def _unsupported(version: tuple[int, int]) -> str:
    return (
        f"the Triton server runs on Python 3.10 to 3.12 and this is {version[0]}.{version[1]}; "
        "use one of those for the server (clients may keep theirs)"
    )
