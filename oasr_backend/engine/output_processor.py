"""From frame scores to text and times."""

from collections.abc import Sequence

from oasr_backend.decode.base import DecodeSession, DecodeStrategy, Hypothesis
from oasr_backend.decode.scores import FrameScores
from oasr_backend.decode.words import token_spans
from oasr_backend.engine.request import FinishReason, Request, RequestOutput
from oasr_backend.tokenizers.base import Tokenizer


class OutputProcessor:
    """Decoding sessions and the outputs built from them."""

    def __init__(self, strategy: DecodeStrategy, tokenizer: Tokenizer, seconds_per_frame: float, sample_rate: int):
        self._strategy = strategy
        self._tokenizer = tokenizer
        self._seconds_per_frame = seconds_per_frame
        self._sample_rate = sample_rate

    def open(self) -> DecodeSession:
        return self._strategy.open()

    def close(self, session: DecodeSession) -> None:
        self._strategy.close(session)

    def advance(self, sessions: Sequence[DecodeSession], scores: FrameScores, frames: Sequence[int]) -> None:
        self._strategy.advance(sessions, scores, frames)

    def stream_output(self, request: Request, finish_reason: FinishReason | None = None) -> RequestOutput:
        """Where a stream stands; final when there is a reason."""
        assert request.session is not None
        return self._output(
            request.request_id,
            self._strategy.best(request.session),
            audio_seconds=request.samples_received / self._sample_rate,
            samples_done=request.samples_received if finish_reason else request.samples_done,
            finish_reason=finish_reason,
        )

    def clip_output(self, request_id: str, session: DecodeSession, samples: int) -> RequestOutput:
        return self._output(
            request_id,
            self._strategy.best(session),
            audio_seconds=samples / self._sample_rate,
            samples_done=samples,
            finish_reason="stop",
        )

    def _output(
        self,
        request_id: str,
        best: Hypothesis,
        audio_seconds: float,
        samples_done: int,
        finish_reason: FinishReason | None,
    ) -> RequestOutput:
        def seconds(frame: int) -> float:
            # Padding is no audio: no time lies past the last sample.
            return min(frame * self._seconds_per_frame, audio_seconds)

        spans = token_spans(best.frames)
        return RequestOutput(
            request_id=request_id,
            text=self._tokenizer.decode(best.tokens),
            tokens=(best.tokens,),
            scores=(best.score,),
            finished=finish_reason is not None,
            timestamps=tuple(map(seconds, best.frames)),
            confidence=sum(best.confidences) / len(best.confidences) if best.tokens else None,
            start=seconds(spans[0][0]) if spans else None,
            end=seconds(spans[-1][1]) if spans else None,
            finish_reason=finish_reason,
            audio_seconds=audio_seconds,
            samples_done=samples_done,
        )
