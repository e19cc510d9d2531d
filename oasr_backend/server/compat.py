"""The names by which clients of WeNet's Triton server call, beside our own."""

from collections.abc import Collection
from pathlib import Path

from oasr_backend.server.errors import LaunchError
from oasr_backend.utils.paths import compat_repository_dir

COMPAT_NAMES = {"streaming_wenet": "oasr_streaming", "attention_rescoring": "oasr_offline"}
"""The model of ours that answers to each; the ensembles in compat_repository say the same to Triton."""


def compat_models(models: Collection[str]) -> dict[str, Path]:
    """The folders of those names that one of `models` can answer to.

    Raises LaunchError when there is none, or a name is taken by another model.
    """
    taken = [name for name in COMPAT_NAMES if name in models]
    if taken:
        raise LaunchError(f"the model repository has a model {taken[0]} of its own; leave --compat-names out")
    names = [name for name, answering in COMPAT_NAMES.items() if answering in models]
    if not names:
        raise LaunchError(
            f"--compat-names needs {' or '.join(COMPAT_NAMES.values())}, and neither is served; "
            "add one to --models, or leave --compat-names out"
        )
    try:
        root = compat_repository_dir()
    except FileNotFoundError as error:
        raise LaunchError(str(error)) from None
    return {name: root / name for name in names}
