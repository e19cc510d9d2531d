"""Checkpoints on the Hugging Face Hub, kept in its cache on this machine."""

import re
from pathlib import Path

from oasr_backend.errors import CheckpointError

# What the checkpoint formats read; `*` matches folders too.
ALLOWED = ("*.yaml", "*.pt", "*.safetensors", "*.txt", "*.json", "*.model", "*cmvn*")
_NAME = r"\w(?:[\w.-]*\w)?"
_HUB_ID = re.compile(rf"(?P<name>{_NAME}/{_NAME})(?:@(?P<revision>[\w./-]+))?", re.ASCII)


def checkpoint_dir(text: str) -> Path:
    """The directory that `text` names: as it is where there is one, else of `org/name` or `org/name@revision`.

    Any other text is taken for a directory, which the loader then misses. Raises CheckpointError when the Hub does
    not have it or cannot be asked and no copy is kept.
    """
    path, hub_id = Path(text), _HUB_ID.fullmatch(text)
    if path.is_dir() or hub_id is None:
        return path
    return _snapshot(text, hub_id["name"], hub_id["revision"])


def _snapshot(text: str, name: str, revision: str | None) -> Path:
    try:
        from huggingface_hub import constants, snapshot_download
        from huggingface_hub import utils as errors
    except ImportError:
        raise CheckpointError(
            f"checkpoint {text} is no directory here, and fetching it from the Hugging Face Hub needs the package "
            "huggingface_hub; install it"
        ) from None
    # No message of the library is repeated: it may hold an address with a token in it. `from None` for the same reason.
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(ALLOWED)))
    except errors.GatedRepoError:
        reason = "its owners on the Hugging Face Hub let nobody read it unasked; ask them there, and set HF_TOKEN"
    except errors.RepositoryNotFoundError:
        reason = "the Hugging Face Hub has no such repository that you may read; correct the name, or set HF_TOKEN"
    except errors.RevisionNotFoundError:
        reason = f"the repository on the Hugging Face Hub has no revision {revision or 'main'}; correct it"
    except errors.HFValidationError:
        reason = "it is no name that the Hugging Face Hub allows; name a directory or org/name"
    except errors.LocalEntryNotFoundError:
        if constants.HF_HUB_OFFLINE:
            reason = "no whole copy is kept under HF_HOME and HF_HUB_OFFLINE is set; unset it once to fetch one"
        else:
            reason = "the Hugging Face Hub cannot be reached and no whole copy is kept under HF_HOME; try again online"
    except Exception as error:
        reason = f"fetching it from the Hugging Face Hub failed ({type(error).__name__}); try again"
    raise CheckpointError(f"checkpoint {text} is no directory here, and {reason}") from None
