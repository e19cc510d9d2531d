"""The JSON schema of RESULT, which travels with this package."""

import json
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).resolve().parent
# In a wheel; in a clone or an editable install.
_PLACES = (_PACKAGE / "_data" / "result.schema.json", _PACKAGE.parents[1] / "docs" / "result.schema.json")


def result_schema() -> dict[str, Any]:
    """The schema (draft 2020-12) that every RESULT document follows.

    Raises:
        FileNotFoundError: the file is missing from the installation.
    """
    for place in _PLACES:
        if place.is_file():
            schema: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
            return schema
    raise FileNotFoundError("result.schema.json of this package is missing; reinstall oasr-triton")
