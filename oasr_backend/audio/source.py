"""The bytes of a file as the readers' libraries take them."""

import io
import time

# Processor time for finding out what is in a file, in seconds; a header of millions of empty parts takes longer.
_HEADER_S = 3.0


class Source(io.BytesIO):
    """Bytes that run dry when the library has worked on them for too long without giving control back."""

    def __init__(self, data: bytes, deadline: float):
        """`deadline` is of this thread's processor time."""
        super().__init__(data)
        self._deadline = deadline
        self._limit = min(deadline, time.thread_time() + _HEADER_S)

    def header_is_read(self) -> None:
        """From now on there is time for the samples."""
        self._limit = self._deadline

    def read(self, size: int | None = -1, /) -> bytes:
        return b"" if time.thread_time() > self._limit else super().read(size)

    def readinto(self, buffer: "bytearray | memoryview", /) -> int:  # type: ignore[override]
        return 0 if time.thread_time() > self._limit else super().readinto(buffer)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """A damaged header may send libsndfile to before the beginning, where an exception could only be printed."""
        try:
            return super().seek(offset, whence)
        except ValueError:
            return super().seek(0)
