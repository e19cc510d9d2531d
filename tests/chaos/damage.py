"""What happens to files: bits flip, ends are missing, parts are lost, doubled or of another file, headers lie."""

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

_EXTREMES = (b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80", b"\x01\x00\x00\x00")


@dataclass(frozen=True)
class Damaged:
    """A file, which does not fit on a terminal."""

    data: bytes

    def __repr__(self) -> str:
        return f"<{len(self.data)} bytes, {self.data[:64]!r} …>"


def _flipped(data: bytes, at: float, bits: int) -> bytes:
    place = int(at * (len(data) - 1))
    return data[:place] + bytes([data[place] ^ bits]) + data[place + 1 :]


def _cut_off(data: bytes, at: float) -> bytes:
    return data[: int(at * len(data))]


def _lost(data: bytes, at: float, length: int) -> bytes:
    place = int(at * len(data))
    return data[:place] + data[place + length :]


def _doubled(data: bytes, at: float, length: int) -> bytes:
    place = int(at * len(data))
    return data[: place + length] + data[place:]


def _filled(data: bytes, at: float, with_what: bytes) -> bytes:
    place = int(at * len(data))
    return data[:place] + with_what + data[place + len(with_what) :]


@st.composite
def files(draw: st.DrawFn, originals: Sequence[bytes]) -> Damaged:
    """One of these files with up to six damages, most of them near its front, where its headers are."""
    data = draw(st.sampled_from(originals))
    front = st.floats(0, 0.02)
    places = front | front | st.floats(0, 1, exclude_max=True)
    for kind in draw(st.lists(st.sampled_from(range(7)), min_size=1, max_size=6)):
        if not data:
            break
        at = draw(places)
        match kind:
            case 0:
                data = _flipped(data, at, draw(st.integers(1, 255)))
            case 1:
                data = _cut_off(data, draw(st.floats(0, 1)))
            case 2:
                data = _lost(data, at, draw(st.integers(1, 3000)))
            case 3:
                data = _doubled(data, at, draw(st.integers(1, 3000)))
            case 4:
                data = _filled(data, at, draw(st.sampled_from(_EXTREMES)))
            case 5:
                data = _filled(data, at, draw(st.binary(min_size=1, max_size=64)))
            case 6:
                data = data[: int(at * len(data))] + draw(st.sampled_from(originals))
    return Damaged(data)
