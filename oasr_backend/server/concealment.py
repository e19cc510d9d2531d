"""Taking secrets out of a running process' command line, which every user of the machine can read.

tritonserver takes tokens as arguments and in no other way. It copies them while it parses its command line, so their
place in its memory can be blanked afterwards.
"""

from collections.abc import Sequence
from pathlib import Path

# Counted from the state, which follows the name in brackets: proc(5).
_ARG_START, _ARG_END = 45, 46


def conceal(pid: int, secrets: Sequence[str]) -> bool:
    """Blanks `secrets` in the arguments of process `pid`, a descendant; whether none can be seen afterwards."""
    process = Path("/proc") / str(pid)
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        begin, end = int(fields[_ARG_START]), int(fields[_ARG_END])
        with open(process / "mem", "r+b", buffering=0) as memory:
            memory.seek(begin)
            arguments = memory.read(end - begin)
            for secret in map(str.encode, secrets):
                place = arguments.find(secret)
                while place >= 0:
                    memory.seek(begin + place)
                    memory.write(b"*" * len(secret))
                    place = arguments.find(secret, place + 1)
        shown = (process / "cmdline").read_bytes()
    except (OSError, ValueError, IndexError):
        return False
    return not any(secret.encode() in shown for secret in secrets)
