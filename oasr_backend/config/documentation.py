"""docs/configuration.md, from the dataclasses themselves: `python -m oasr_backend.config.documentation` prints it."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, get_type_hints

from oasr_backend.audio.limits import AudioLimits
from oasr_backend.config.fields import GROUPS
from oasr_backend.config.inert import INERT
from oasr_backend.config.kinds import in_words
from oasr_backend.triton.settings import FIXED, AdapterSettings

_INTRODUCTION = """\
# Configuration

Written by `make docs`; change the docstrings of `oasr_backend/config/fields.py` and `oasr_backend/triton/settings.py`
instead.

Every field of `EngineConfig` is a keyword argument of it, and under Triton a setting of the same name. Strongest
first, a setting of a model is taken from

1. `OASR_STREAMING_<NAME>` or `OASR_OFFLINE_<NAME>`, for the model of that name alone;
2. `OASR_<NAME>`, for all models;
3. `parameters` of the model's `config.pbtxt`;
4. the default.

`oasr serve --set NAME=VALUE` sets `OASR_<NAME>`, and is stronger than what the environment says of any model.

As text, true and false are `true` and `false`, whole numbers in a row are `8,16` or `[8, 16]`, a mapping is a JSON
object, and `none` or nothing is None where None is allowed. An unknown name, an impossible value, two values that
contradict each other and a value that cannot be honoured are errors of one sentence; nothing is ignored.

`service_mode` is fixed by each model's `config.pbtxt`. The streaming model's `max_batch_size` is its `max_sequences`,
its `partial_decode_interval` is 1, and it takes no `preferred_batch_size`, because live streams never wait for others.
What concerns offline clips alone (`enable_sequence_packing`, `long_form`, `overlap_admit`, `preferred_batch_size`) may
be said to all models: the streaming one passes it over. `audio_decode` has settings of its own, in the last table
(`OASR_DECODE_<NAME>` for it alone), and takes `log_level`, `log_format` and `log_text`; its `max_audio_seconds` is
another one than the offline model's, and `OASR_MAX_AUDIO_SECONDS` sets both, as recordings of more than 2 hours need:
what several models read is written and understood alike by all.
"""
_ADAPTER_HEADING = "The Triton models"
_FILES_HEADING = "Files (`audio_decode`)"
_HEADER = "| field | type | default | what it does | environment |\n|---|---|---|---|---|"


def render() -> str:
    """The whole page."""
    sections = [_INTRODUCTION]
    for group in GROUPS:
        sections.append(_section(inspect.getdoc(group) or group.__name__, group))
    sections.append(_section(_ADAPTER_HEADING, AdapterSettings))
    sections.append(_section(_FILES_HEADING, AudioLimits))
    return "\n".join(sections)


def _section(heading: str, group: type) -> str:
    return "\n".join((f"## {heading}\n", _HEADER, *_rows(group), ""))


def _rows(group: type) -> Iterator[str]:
    annotations, docs = get_type_hints(group), field_docs(group)
    for field in fields(group):
        cells = (
            f"`{field.name}`",
            in_words(annotations[field.name]),
            f"`{_default(field)!r}`",
            f"{docs[field.name]}{_remark(field)}",
            "none: it is fixed" if field.name in FIXED else f"`OASR_{field.name.upper()}`",
        )
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def field_docs(group: type) -> dict[str, str]:
    """The docstring below each field of a dataclass, in one line; empty where there is none."""
    docs = {}
    for owner in reversed(group.__mro__):
        if is_dataclass(owner):
            docs.update(_own_docs(owner))
    return docs


def _own_docs(owner: type) -> dict[str, str]:
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    assert isinstance(tree, ast.ClassDef)
    docs = {}
    for statement, below in zip(tree.body, [*tree.body[1:], ast.Pass()], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            docs[statement.target.id] = _string(below)
    return docs


def _string(statement: ast.AST) -> str:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return " ".join(str(statement.value.value).split())
    return ""


def _default(field: "Field[Any]") -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


def _remark(field: "Field[Any]") -> str:
    for inert in INERT:
        if inert.name == field.name:
            accepted = " or ".join(f"`{value!r}`" for value in (field.default, *inert.off))
            return f" Without effect, because {inert.reason}: only {accepted} is taken."
    return ""


if __name__ == "__main__":
    print(render(), end="")
