"""From frame scores to text and times."""

from collections.abc import Sequence

from oasr_backend.decode.base import DecodeSession, DecodeStrategy, Hypothesis
from oasr_backend.decode.scores import FrameScores
from oasr_backend.decode.words import TimedWord, Word, token_spans
from oasr_backend.engine.longform import Heard, join
from oasr_backend.engine.options import DecodingOptions
from oasr_backend.engine.rendering import Rendering
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

    def check(self, options: DecodingOptions) -> None:
        """Raises ValueError for an option that cannot be honoured."""
        options.check(self._strategy.max_n_best, self._strategy.times_tokens)

    def stream_output(self, request: Request, finish_reason: FinishReason | None = None) -> RequestOutput:
        """Where a stream stands; final when there is a reason."""
        assert request.session is not None
        return self._output(
            request,
            request.session,
            samples_done=request.samples_received if finish_reason else request.samples_done,
            finish_reason=finish_reason,
        )

    def clip_output(self, request: Request, session: DecodeSession) -> RequestOutput:
        """The final output of a clip; a window of a recording keeps its hypothesis."""
        if request.parent_id is not None:
            request.hypothesis = self._strategy.best(session)
            return RequestOutput(request.request_id, finished=True, finish_reason="stop")
        return self._output(request, session, samples_done=request.samples_received, finish_reason="stop")

    def pieces(self, hypothesis: Hypothesis) -> tuple[str, ...]:
        """Text of every token."""
        return tuple(map(self._tokenizer.piece, hypothesis.tokens))

    def recording_output(self, request: Request, parts: Sequence[Heard]) -> RequestOutput:
        """The final output of a recording that was heard in windows."""
        best, pieces = join(parts, self._seconds_per_frame)
        request.rendering = Rendering.of(best, pieces)
        return self._render(request, best, [best], request.samples_received, "stop")

    def _output(
        self, request: Request, session: DecodeSession, samples_done: int, finish_reason: FinishReason | None
    ) -> RequestOutput:
        best = self._strategy.best(session)
        request.rendering.follow(best, self._tokenizer)
        n_best = request.options.n_best if finish_reason is not None else 1
        hypotheses = self._strategy.n_best(session, n_best) if n_best > 1 else [best]
        return self._render(request, best, hypotheses, samples_done, finish_reason)

    def _render(
        self,
        request: Request,
        best: Hypothesis,
        hypotheses: Sequence[Hypothesis],
        samples_done: int,
        finish_reason: FinishReason | None,
    ) -> RequestOutput:
        audio_seconds = request.samples_received / self._sample_rate

        def seconds(frame: int) -> float:
            # Padding is no audio: no time lies past the last sample.
            return min(frame * self._seconds_per_frame, audio_seconds)

        def timed_word(word: Word) -> TimedWord:
            return TimedWord(word.text, seconds(word.start), seconds(word.end), word.confidence)

        options, final = request.options, finish_reason is not None
        rendering = request.rendering
        timed: tuple[TimedWord, ...] | None = None
        if options.word_timestamps:
            still_open = [timed_word(word) for word in rendering.open_words(best)]
            kept = rendering.settled_timed
            kept += [timed_word(word) for word in rendering.settled[len(kept) :]]
            timed = (*kept, *still_open)
        return RequestOutput(
            request_id=request.request_id,
            text=self._tokenizer.finish(rendering.joined),
            tokens=tuple(hypothesis.tokens for hypothesis in hypotheses),
            scores=tuple(hypothesis.score for hypothesis in hypotheses),
            finished=final,
            timestamps=tuple(map(seconds, best.frames)) if final else (),
            confidence=sum(best.confidences) / len(best.confidences) if best.tokens else None,
            start=seconds(token_spans(best.frames[:1])[0][0]) if best.tokens else None,
            end=seconds(token_spans(best.frames[-1:])[0][1]) if best.tokens else None,
            words=timed,
            nbest_texts=self._texts(hypotheses) if final and options.n_best > 1 else None,
            finish_reason=finish_reason,
            audio_seconds=audio_seconds,
            samples_done=samples_done,
        )

    def _texts(self, hypotheses: Sequence[Hypothesis]) -> tuple[str, ...]:
        return tuple(self._tokenizer.decode(hypothesis.tokens) for hypothesis in hypotheses)
