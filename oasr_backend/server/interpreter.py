"""What the interpreter inside the stub needs, so that it is like the one that runs the launcher.

The stub starts it isolated: it takes neither PYTHONPATH nor user packages from its surroundings, and its text encoding
is ASCII whatever the locale says.
"""

import importlib.util
import os
import site
import sys
from collections.abc import Mapping
from pathlib import Path

_ADDITION = """

# ---- added by oasr_backend.server.interpreter ----
import locale as _locale
import sys as _sys

_sys.path[1:1] = [path for path in {leading!r} if path not in _sys.path]
_sys.path += [path for path in {following!r} if path not in _sys.path]
try:
    _locale.setlocale(_locale.LC_CTYPE, "C.UTF-8")
except _locale.Error:
    pass
for _stream in (_sys.stdout, _sys.stderr):
    if hasattr(_stream, "reconfigure"):
        _stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
"""


def backend_utils(source: Path, environment: Mapping[str, str]) -> str:
    """The text of triton_python_backend_utils.py, which our models import before all else, with our search path."""
    addition = _ADDITION.format(leading=leading_paths(environment), following=following_paths())
    return source.read_text(encoding="utf-8") + addition


def leading_paths(environment: Mapping[str, str]) -> list[str]:
    """What comes before the standard library: where our packages lie, and PYTHONPATH."""
    site_dirs = [*site.getsitepackages(), site.getusersitepackages()]
    ours = [path for path in _package_parents() if path not in site_dirs]
    return list(dict.fromkeys([*ours, *entries(environment.get("PYTHONPATH"))]))


def following_paths() -> list[str]:
    """What comes after it: the rest of this interpreter's own path, like user packages and editable installs."""
    return [path for path in sys.path if os.path.isabs(path) and os.path.isdir(path)]


def entries(value: str | None) -> list[str]:
    """The entries of a search path, made absolute; empty ones, which mean the current directory, are left out."""
    return [os.path.abspath(entry) for entry in (value or "").split(os.pathsep) if entry]


def _package_parents() -> list[str]:
    parents: list[str] = []
    for package in ("oasr_backend", "oasr_client"):
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            parents.append(str(Path(folder).resolve().parent))
    return list(dict.fromkeys(parents))
