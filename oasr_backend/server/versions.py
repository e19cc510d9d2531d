"""Several checkpoints side by side, as versions of the models that have an engine."""

import json
from collections.abc import Mapping
from pathlib import Path

from oasr_backend.server.errors import LaunchError

SETTINGS_NAME = "settings.json"


def has_engine(folder: Path) -> bool:
    """Whether the model in a folder of a repository loads a checkpoint."""
    return '"service_mode"' in (folder / "config.pbtxt").read_text(encoding="utf-8")


def write_versions(source: Path, target: Path, checkpoints: Mapping[int, Path]) -> None:
    """Makes `target` a model like that in `source`, with a version for every checkpoint (absolute paths).

    Raises LaunchError when the model chooses its versions itself.
    """
    config = (source / "config.pbtxt").read_text(encoding="utf-8")
    if "version_policy" in config:
        raise LaunchError(f"{source / 'config.pbtxt'} has a version_policy of its own; leave --model-version out")
    numbers = ", ".join(str(number) for number in sorted(checkpoints))
    target.mkdir()
    (target / "config.pbtxt").write_text(
        f"{config}\nversion_policy {{ specific {{ versions: [ {numbers} ] }} }}\n", encoding="utf-8"
    )
    newest = max((path for path in source.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    for number, checkpoint in checkpoints.items():
        folder = target / str(number)
        folder.mkdir()
        for file in newest.iterdir():
            if file.is_file() and file.name != SETTINGS_NAME:
                (folder / file.name).symlink_to(file)
        document = json.dumps({"checkpoint": str(checkpoint)})
        (folder / SETTINGS_NAME).write_text(document, encoding="utf-8")
