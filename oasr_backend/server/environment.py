"""The environment of the server process."""

import os
import sys
from collections.abc import Collection, Mapping, MutableMapping
from pathlib import Path

from oasr_backend.server.errors import LaunchError
from oasr_backend.server.install import ServerInstall
from oasr_backend.server.interpreter import entries, leading_paths
from oasr_backend.server.options import ADMIN_TOKEN_VARIABLE, ServeOptions, check_checkpoint
from oasr_backend.triton.overrides import is_nothing
from oasr_backend.utils.cores import available_cores, threads_for
from oasr_backend.utils.host import has_bfloat16_units
from oasr_backend.utils.paths import demo_checkpoint_dir
from oasr_client.credentials import VARIABLES

_SERVICES = ("STREAMING", "OFFLINE")
# Audio decoding has settings of its own, but no engine.
_SCOPES = (*_SERVICES, "DECODE")
_WEIGHTS = "OASR_CHECKPOINT_NAME"


def server_environment(
    options: ServeOptions, models: Collection[str], install: ServerInstall, base: Mapping[str, str]
) -> dict[str, str]:
    """What the server and the models in it see: `base` (what the user has set), completed and overridden.

    Strongest first: `options.environment`, the other options, `base`, defaults. Raises LaunchError for a checkpoint
    that is not one.
    """
    environment = engine_environment(options, models, base)
    # The interpreter in the stub takes its prefix or virtual environment from the first python3 on PATH.
    programs = [str(Path(sys.executable).parent), *entries(base.get("PATH", os.defpath))]
    libraries = [*map(str, install.library_dirs), *entries(base.get("LD_LIBRARY_PATH"))]
    environment["PATH"] = os.pathsep.join(programs)
    environment["LD_LIBRARY_PATH"] = os.pathsep.join(libraries)
    environment["PYTHONPATH"] = os.pathsep.join(leading_paths(base))
    # The engines set their threads themselves; a pool sized by another rule would only compete with them.
    environment.pop("OMP_NUM_THREADS", None)
    settle_waiting(environment)
    return environment


def settle_waiting(environment: MutableMapping[str, str]) -> None:
    """Says how threads wait at barriers, unless the user has: read once, when a process loads PyTorch."""
    if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & environment.keys():
        environment.update(wait_policy(has_bfloat16_units()))


def wait_policy(steps_are_short: bool) -> dict[str, str]:
    """How libgomp's threads wait at barriers; by default they spin so long that every neighbour starves.

    Where steps are short, spinning a little saves a third of their time; elsewhere it only costs (docs/benchmarks.md).
    """
    return {"GOMP_SPINCOUNT": "10000"} if steps_are_short else {"OMP_WAIT_POLICY": "PASSIVE"}


def engine_environment(options: ServeOptions, models: Collection[str], base: Mapping[str, str]) -> dict[str, str]:
    """`base` with the OASR_* variables settled."""
    # Secrets of the launcher and of clients are no business of the models.
    environment = {name: value for name, value in base.items() if name not in (*VARIABLES, ADMIN_TOKEN_VARIABLE)}
    if options.checkpoint is not None:
        _override(environment, "OASR_CHECKPOINT", str(options.checkpoint))
    if options.max_sequences is not None:
        _override(environment, "OASR_MAX_SEQUENCES", str(options.max_sequences))
    if options.num_threads is not None:
        environment.pop("OASR_NUM_THREADS", None)
        for service, count in zip(_SERVICES, threads_for(models, options.num_threads)):
            environment[f"OASR_{service}_NUM_THREADS"] = str(count)
    # A service's own variable is longer than the general one, which must not take it away again.
    for name in sorted(options.environment, key=len):
        _override(environment, name, options.environment[name])

    for name in ("OASR_NUM_THREADS", *(f"OASR_{service}_NUM_THREADS" for service in _SERVICES)):
        # To an engine it would mean every core, whoever else there is.
        if is_nothing(environment.get(name, "")):
            environment.pop(name, None)
    if "OASR_NUM_THREADS" not in environment:
        for service, count in zip(_SERVICES, threads_for(models, available_cores())):
            environment.setdefault(f"OASR_{service}_NUM_THREADS", str(count))
    if options.versions:
        # Each version names its own; one for all would only be examined in vain.
        for name in ("OASR_CHECKPOINT", *(f"OASR_{service}_CHECKPOINT" for service in _SERVICES)):
            environment.pop(name, None)
    elif options.model_repository is None and "OASR_CHECKPOINT" not in environment:
        # Another repository names its checkpoint in its own configuration.
        environment["OASR_CHECKPOINT"] = _bundled_checkpoint()
    for name in ("OASR_CHECKPOINT", *(f"OASR_{service}_CHECKPOINT" for service in _SERVICES)):
        if name in environment:
            # Absolute, because the server runs in a directory of its own; a link stays one, to be set for a reload.
            environment[name] = str(check_checkpoint(environment[name], weights_name(environment, f"{name}_NAME")))
    return environment


def weights_name(environment: Mapping[str, str], variable: str = _WEIGHTS) -> str | None:
    """The weights file that the engines will look for, by a model's own variable or the general one; None: theirs."""
    text = environment.get(variable, environment.get(_WEIGHTS, ""))
    return None if is_nothing(text) else text.strip()


def parse_setting(text: str) -> tuple[str, str]:
    """`NAME=VALUE` of the command line as the variable (OASR_NAME, VALUE); raises ValueError for any other text."""
    name, equals, value = text.partition("=")
    name = name.strip().upper()
    if not equals or not name.replace("_", "").isalnum():
        raise ValueError(f"{text!r} is not NAME=VALUE, like dtype=float32")
    return (name if name.startswith("OASR_") else f"OASR_{name}"), value


def _override(environment: dict[str, str], name: str, value: str) -> None:
    """Sets a variable, and takes away those of single services that would be stronger."""
    environment[name] = value
    if name.startswith("OASR_"):
        for scope in _SCOPES:
            environment.pop(f"OASR_{scope}_{name.removeprefix('OASR_')}", None)


def _bundled_checkpoint() -> str:
    try:
        return str(demo_checkpoint_dir())
    except FileNotFoundError as error:
        raise LaunchError(f"{error}; or name a checkpoint with --checkpoint") from None
