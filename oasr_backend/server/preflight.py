"""The check that comes before a server is started: would its models load, and with what."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

from oasr_backend.server.compat import compat_models
from oasr_backend.server.environment import engine_environment, settle_waiting
from oasr_backend.server.errors import LaunchError, Refused, StartCancelled
from oasr_backend.server.interpreter import leading_paths
from oasr_backend.server.options import ServeOptions, find_models

_REFUSED = 2
_POLL_S = 0.1


def preflight(options: ServeOptions, cancelled: Callable[[], bool] = lambda: False) -> list[str]:
    """Lines on the checkpoint, on what will be used and on what clients send; none for models of others.

    In a process of its own, so that the launcher stays small while the server runs. Raises Refused with one sentence
    when a model would refuse to load, LaunchError when that cannot be found out, StartCancelled when asked to stop.
    """
    repository, models = find_models(options.model_repository, options.models)
    folders = {name: repository / name for name in models}
    if options.compat_names:
        folders |= compat_models(models)
    environment = engine_environment(options, models, os.environ)
    settle_waiting(environment)
    environment["PYTHONPATH"] = os.pathsep.join(leading_paths(os.environ))
    command = [sys.executable, "-m", "oasr_backend.triton.preflight", *map(str, folders.values())]
    status, told = _run(command, environment, cancelled)
    if status == _REFUSED:
        raise Refused(told.strip())
    if status != 0:
        cause = f"by {signal.Signals(-status).name}" if status < 0 else f"with exit status {status}"
        raise LaunchError(f"the check of the checkpoint ended {cause}; the machine may be out of memory")
    return told.splitlines()


def _run(command: Sequence[str], environment: Mapping[str, str], cancelled: Callable[[], bool]) -> tuple[int, str]:
    """Exit status and output; what it says of its own accord goes where our errors go."""
    # In a session of its own: an interrupt is for the launcher, which ends it.
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
        encoding="utf-8",
        errors="replace",
    ) as process:
        while True:
            try:
                told, _ = process.communicate(timeout=_POLL_S)
                return process.returncode, told
            except subprocess.TimeoutExpired:
                if cancelled():
                    process.kill()
                    raise StartCancelled from None
            except BaseException:
                process.kill()
                raise
