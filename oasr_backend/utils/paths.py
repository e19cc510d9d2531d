"""Where the files that travel with the package lie: the model repositories and the assets."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def model_repository_dir() -> Path:
    """The Triton model repository of this distribution."""
    return data_dir("model_repository")


def compat_repository_dir() -> Path:
    """The Triton model repository of the names that clients of WeNet's server call."""
    return data_dir("compat_repository")


def assets_dir() -> Path:
    """The bundled checkpoint and audio clips."""
    return data_dir("assets")


def demo_checkpoint_dir() -> Path:
    """The bundled English checkpoint, used when no other is named."""
    return data_dir("assets/demo-en")


def data_dir(name: str, package: Path = _PACKAGE) -> Path:
    """Finds a data folder: `<package>/_data/<name>` in a wheel, beside the package in a clone or editable install.

    Raises FileNotFoundError, with one sentence fit for the user, when neither exists.
    """
    candidates = (package / "_data" / name, package.parent / name)
    for candidate in candidates:
        if candidate.is_dir():
            return candidate
    places = " nor ".join(str(candidate) for candidate in candidates)
    raise FileNotFoundError(
        f"the folder {name} of this package is missing (neither {places} exists); "
        "reinstall oasr-triton, or restore the folder in the clone"
    )
