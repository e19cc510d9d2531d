"""docker/.env.example, from the dataclasses themselves: `python -m oasr_backend.config.env_example` prints it."""

import json
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, get_type_hints

from oasr_backend.audio.limits import AudioLimits
from oasr_backend.config.documentation import field_docs
from oasr_backend.config.fields import GROUPS
from oasr_backend.config.inert import INERT
from oasr_backend.config.kinds import in_words
from oasr_backend.triton.overrides import FOREIGN, PREFIX
from oasr_backend.triton.settings import FIXED, AdapterSettings

_INTRODUCTION = """\
# Settings of docker/compose.yaml: copy this file to .env beside it, and take the # away from what you change.
# Written by `make docs`. A line `NAME=` with nothing behind it sets a setting to nothing; leave the # there instead.

# --- Compose: what runs and where ---

# Folder of checkpoints on this machine; the containers see it read-only as /checkpoints.
#CHECKPOINTS=./checkpoints
# Address that the ports are published on. 0.0.0.0 is every network: put a proxy with TLS in front first.
#BIND_ADDRESS=127.0.0.1
#HTTP_PORT=8000
#GRPC_PORT=8001
#METRICS_PORT=8002
#PROMETHEUS_PORT=9090
#GRAFANA_PORT=3000
# Of the proxy in docker/scale: its page of servers and its metrics.
#STATS_PORT=8404
# Shared memory between Triton and the models, and room for temporary files.
#SHM_SIZE=1gb
#TMP_SIZE=512m
# Which GPU (profile gpu), by number or UUID.
#GPU=0
#CPU_IMAGE=oasr-triton:0.1.0-cpu
#GPU_IMAGE=oasr-triton:0.1.0-gpu
# How long Prometheus keeps its samples, and the first password of Grafana's user admin.
#RETENTION=15d
#GRAFANA_PASSWORD=admin

# --- The container's health check ---

# Failures in a row after which the container ends, to be started again.
#HEALTHCHECK_FAILURES=3
# 0 lets the server fetch a checkpoint by its name from the Hugging Face Hub; HF_HOME must then be a place to write to.
#HF_HUB_OFFLINE=1

# --- The server ---
#
# OASR_STREAMING_<NAME>, OASR_OFFLINE_<NAME> and OASR_DECODE_<NAME> say the same to one model alone, and are stronger.
# Shown are the defaults of the engine (`none` is no value); the models change a few of them in their config.pbtxt.
# docs/serving.md has the settings most often changed, docs/configuration.md all with types.
"""
_LAUNCHER = {"tritonserver": "The tritonserver to run, a file; not given: the image's own."}
_OTHER = "Of the launcher and of clients: docs/serving.md, docs/security.md."
_FILES_HEADING = "Audio files (oasr_transcribe); max_audio_seconds is the longest clip of the offline model, too"


def render() -> str:
    """The whole file."""
    parts = [_INTRODUCTION]
    parts.append(_heading("The Triton models") + "\n".join(_entries(AdapterSettings, field_docs(AdapterSettings))))
    # What two models know is shown once, with the value that both take.
    taken = {field.name for owner in (AdapterSettings, AudioLimits) for field in fields(owner)}
    for group in GROUPS:
        docs = {name: text for name, text in field_docs(group).items() if name not in taken}
        taken |= docs.keys()
        parts.append(_heading((group.__doc__ or group.__name__).strip()) + "\n".join(_entries(group, docs)))
    parts.append(_heading(_FILES_HEADING) + "\n".join(_entries(AudioLimits, field_docs(AudioLimits))))
    launcher = [
        line for name in sorted(FOREIGN) for line in _entry(f"{PREFIX}{name.upper()}", "", _LAUNCHER.get(name, _OTHER))
    ]
    parts.append(_heading("The launcher") + "\n".join(launcher))
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _heading(text: str) -> str:
    return f"# {text}\n#\n"


def _entries(group: type, docs: Mapping[str, str]) -> Iterator[str]:
    annotations = get_type_hints(group)
    for field in fields(group):
        if field.name in docs and field.name not in FIXED:
            effect = f"{docs[field.name]} ({in_words(annotations[field.name])})"
            if any(inert.name == field.name for inert in INERT):
                effect += " Without effect so far: leave it."
            yield from _entry(f"{PREFIX}{field.name.upper()}", _text(field), effect)


def _entry(variable: str, value: str, effect: str) -> Iterator[str]:
    yield from textwrap.wrap(effect, 116, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
    yield f"#{variable}={value}"


def _text(field: "Field[Any]") -> str:
    """The default as it is written in the environment."""
    value = field.default_factory() if field.default_factory is not MISSING else field.default
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, Mapping):
        return json.dumps(dict(value))
    return str(value)


if __name__ == "__main__":
    print(render(), end="")
