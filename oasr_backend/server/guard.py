"""Becomes the command in its arguments, to be told to end by the kernel when the process that started it dies.

Run as a script, before anything is imported that the server must not inherit:
`python -I -S guard.py PARENT_PID COMMAND…`
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)
    try:
        os.execv(command[0], command)
    except OSError as error:
        sys.exit(f"error: {command[0]} cannot be run: {error.strerror}")


if __name__ == "__main__":
    main()
