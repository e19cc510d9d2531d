"""What a stream's user has been told once and must not be told again by a replay, nor lose in it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Times of the same event differ by no more between two sequences.
_SAME_S = 0.25


@dataclass
class Told:
    """Endpoints and speech events: the server tells each in one answer, which may have been lost or replayed."""

    _events: list[Mapping[str, Any]] = field(default_factory=list)
    _endpoint: Mapping[str, Any] | None = None
    _last_event_s: float = -1.0
    _replayed_s: float = -1.0
    """Events up to here come again."""
    _finals: int = 0
    _in_replay: bool = False

    def begin_replay(self) -> None:
        """Audio that was heard is sent again."""
        self._events, self._endpoint, self._in_replay = [], None, True
        self._replayed_s = self._last_event_s + _SAME_S if self._last_event_s >= 0 else -1.0

    def hear(self, result: Mapping[str, Any]) -> None:
        """Takes in a RESULT of the whole stream, be it the answer to the user's chunk or to a part of a replay."""
        self._events += [event for event in result.get("speech_events", ()) if event["time"] > self._replayed_s]
        if "endpoint" in result and (not self._in_replay or _finals(result) > self._finals):
            self._endpoint = result["endpoint"]

    def response(self, result: dict[str, Any]) -> dict[str, Any]:
        """`result`, which was heard, with what the user is to be told."""
        told = {key: value for key, value in result.items() if key not in ("speech_events", "endpoint")}
        if self._endpoint is not None:
            told["endpoint"] = self._endpoint
        if "speech_events" in result:
            told["speech_events"] = self._events
            self._last_event_s = max([self._last_event_s, *(event["time"] for event in self._events)])
        self._events, self._endpoint, self._in_replay, self._finals = [], None, False, _finals(result)
        return told


def _finals(result: Mapping[str, Any]) -> int:
    return sum(segment["is_final"] for segment in result.get("segments", ()))
