"""Times of tokens, as pure rules on frames."""

from collections.abc import Sequence

# A token that follows a pause starts at most this many frames before its peak.
_MAX_LEAD = 5


def token_spans(peaks: Sequence[int]) -> list[tuple[int, int]]:
    """Frames [start, end) of each token, given the frame of its peak.

    A token ends with its peak's frame and starts after the last token's, but no more than five frames before its peak.
    """
    spans = []
    last = -1
    for peak in peaks:
        spans.append((max(last + 1, peak - _MAX_LEAD, 0), peak + 1))
        last = peak
    return spans
