"""Variables for processes that are started."""

import contextlib
import os
from collections.abc import Iterator, Mapping

WAIT_VARIABLES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_NUM_THREADS")


@contextlib.contextmanager
def only(values: Mapping[str, str]) -> Iterator[None]:
    """Sets `values` for as long; of the variables that rule how threads wait, no others are set.

    libgomp reads them once, when torch is loaded, so they must stand before a process starts; and a spin count that
    was left over would win over a wait policy.
    """
    saved = {name: os.environ.pop(name, None) for name in {*values, *WAIT_VARIABLES}}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in saved.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
