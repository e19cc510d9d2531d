"""How much faster than its audio an engine works."""

from collections import deque

_WINDOW_S = 10.0
# Less work than this says nothing.
_LEAST_BUSY_S = 0.01


class RealTimeFactor:
    """Audio seconds decoded per second of stepping, over a sliding window; without work it keeps what it was."""

    def __init__(self, window_s: float = _WINDOW_S):
        self._window_s = window_s
        self._readings: deque[tuple[float, float, float]] = deque()
        self._value = 0.0

    def update(self, now: float, audio_seconds: float, busy_seconds: float) -> float:
        """The factor after a reading of the two totals; 0 until there was work."""
        readings = self._readings
        readings.append((now, audio_seconds, busy_seconds))
        # One reading at or before the window's begin stays, to measure from.
        while len(readings) > 2 and readings[1][0] <= now - self._window_s:
            readings.popleft()
        _, first_audio, first_busy = readings[0]
        busy = busy_seconds - first_busy
        if busy >= _LEAST_BUSY_S:
            self._value = (audio_seconds - first_audio) / busy
        return self._value
