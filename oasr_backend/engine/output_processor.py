"""From frame scores to text and times."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from oasr_backend.decode.base import Hypothesis
from oasr_backend.decode.endpoint import Endpointer, EndpointReason
from oasr_backend.decode.scores import FrameScores, Needs
from oasr_backend.decode.words import TimedWord, Word, extent
from oasr_backend.engine.decoders import Decoders
from oasr_backend.engine.longform import Heard, join
from oasr_backend.engine.options import DecodingOptions, EndpointDefaults
from oasr_backend.engine.phrases import hotword_graph, unspelt_warnings
from oasr_backend.engine.rendering import Rendering
from oasr_backend.engine.request import FinishReason, Request, RequestOutput, SpeechBoundary
from oasr_backend.engine.transcript import Alternative, Endpoint, Segment, Transcript, join_texts
from oasr_backend.errors import OptionError
from oasr_backend.features.onset import Onset, OnsetDetector, OnsetRule
from oasr_backend.tokenizers.base import Tokenizer

# So much silence the encoder hears before speech where it begins anew: models hear little of it in training.
_LEAD_S = 0.2
# It has heard so much at least before it begins anew again.
_MIN_HISTORY_S = 0.4
_ONSETS = OnsetRule()


@dataclass(frozen=True)
class _Clock:
    """Frames of one segment in seconds of the stream; no time lies past the last sample, for padding is no audio."""

    base_frame: int
    seconds_per_frame: float
    end: float

    def seconds(self, frame: int) -> float:
        return min((self.base_frame + frame) * self.seconds_per_frame, self.end)

    def word(self, word: Word) -> TimedWord:
        return TimedWord(word.text, self.seconds(word.start), self.seconds(word.end), word.confidence)


@dataclass(frozen=True)
class _Stop:
    """A frame of a batch's row before which its stream's decoding stops, and why."""

    frame: int
    reason: EndpointReason | None = None
    """Why the segment ends there."""
    back: int = 0
    """So many frames before it the encoder begins anew; 0: it goes on."""
    onsets: tuple[Onset, ...] = ()
    """Those behind it."""


class OutputProcessor:
    """Decodes requests' frames and builds their outputs."""

    def __init__(
        self,
        decoders: Decoders,
        tokenizer: Tokenizer,
        seconds_per_frame: float,
        sample_rate: int,
        endpoints: EndpointDefaults,
    ):
        self._decoders = decoders
        self._tokenizer = tokenizer
        self._seconds_per_frame = seconds_per_frame
        self._sample_rate = sample_rate
        self._endpoints = endpoints

    def check(self, options: DecodingOptions, streaming: bool) -> None:
        """Raises OptionError for an option that cannot be honoured."""
        options.check(self._decoders.get(options.method), streaming, self._endpoints)
        if options.hotwords and not self._tokenizer.spells:
            raise OptionError("hotwords are set, but this model's tokenizer cannot spell phrases; leave them out")

    def open(self, request: Request) -> Transcript:
        """A request's transcript at its start."""
        options = request.options
        strategy = self._decoders.get(options.method)
        hotwords, unspelt = hotword_graph(options.phrases, options.hotword_score, self._tokenizer)
        transcript = Transcript(strategy, strategy.open(hotwords), hotwords)
        transcript.warnings += unspelt_warnings(unspelt)
        if request.streaming:
            transcript.ends_segments = options.endpoints(self._endpoints)
            if transcript.ends_segments or options.vad_events:
                rule = options.endpoint_rule(self._endpoints)
                transcript.endpointer = Endpointer(rule, self._seconds_per_frame)
            if transcript.ends_segments and options.resets_history(self._endpoints):
                transcript.onsets = OnsetDetector(_ONSETS, self._seconds_per_frame)
        return transcript

    def close(self, transcript: Transcript) -> None:
        transcript.strategy.close(transcript.session)

    @staticmethod
    def needs(requests: Sequence[Request]) -> Needs:
        """What the model's head must give for a batch."""
        return Needs.union(request.live_transcript.needs for request in requests)

    def advance(
        self,
        requests: Sequence[Request],
        scores: FrameScores,
        frames: Sequence[int],
        levels: Sequence[Sequence[float]] = (),
    ) -> list[tuple[Request, Exception]]:
        """Feeds row b's first `frames[b]` frames to request b; a segment that ends among them becomes final.

        `levels` is how loud each row's frames are, in dB; needed where a request has an onset detector. Where speech
        sets on behind a pause the frames from there on are not fed: the transcript's `restart` says that they are to
        come again.

        Returns the requests whose segment could not be made final, and why; the others are none the worse.
        """
        scores.wait()
        transcripts = [request.live_transcript for request in requests]
        stops = []
        for row, (request, count) in enumerate(zip(requests, frames, strict=True)):
            onsets = request.live_transcript.onsets
            found = onsets.feed(levels[row][:count]) if onsets is not None else []
            stops.append(self._stop(request, scores, row, range(count), found))
        self._feed(transcripts, scores, [stop.frame for stop in stops])
        failures = []
        for row, (request, stop, count) in enumerate(zip(requests, stops, frames, strict=True)):
            try:
                self._go_on(request, scores, row, stop, count)
            except Exception as error:
                failures.append((request, error))
        return failures

    def _go_on(self, request: Request, scores: FrameScores, row: int, stop: _Stop, count: int) -> None:
        """Does what `stop` asks for, and feeds what is left of the row's `count` frames."""
        transcript = request.live_transcript
        while stop.back or stop.reason is not None:
            if stop.back:
                transcript.rewind(stop.back)
                transcript.restart = count - stop.frame + stop.back
                assert transcript.onsets is not None
                transcript.onsets.rewind(transcript.restart)
                return
            assert stop.reason is not None
            self._commit(request, stop.reason)
            first = stop.frame
            stop = self._stop(request, scores, row, range(first, count), stop.onsets)
            self._feed([transcript], scores.part(row, first), [stop.frame - first])

    @staticmethod
    def _feed(transcripts: Sequence[Transcript], scores: FrameScores, frames: Sequence[int]) -> None:
        """Each strategy gets its own rows."""
        rows: dict[int, list[int]] = {}
        for row, transcript in enumerate(transcripts):
            rows.setdefault(id(transcript.strategy), []).append(row)
        for own in rows.values():
            sessions = [transcripts[row].session for row in own]
            transcripts[own[0]].strategy.advance(sessions, scores.rows(own), [frames[row] for row in own])
        for transcript, count in zip(transcripts, frames, strict=True):
            transcript.frames += count

    def _stop(self, request: Request, scores: FrameScores, row: int, frames: range, onsets: Sequence[Onset]) -> _Stop:
        """Where among `frames` of the row the segment ends or the encoder begins anew; behind them if it does not."""
        transcript = request.live_transcript
        endpointer = transcript.endpointer
        if endpointer is None:
            return _Stop(frames.stop)
        assert scores.blank is not None
        end = frames.stop
        if request.audio_final:
            # Padding is no audio, and ends no segment.
            heard = math.ceil(request.samples_received / self._sample_rate / self._seconds_per_frame)
            end = max(frames.start, min(end, frames.start + heard - transcript.frames))
        probabilities = scores.blank[row, frames.start : end].exp().tolist()
        # The frame at which the encoder's history is as long as it must be to be left behind.
        history = frames.stop - request.offset + round(_MIN_HISTORY_S / self._seconds_per_frame)
        stop = _Stop(frames.stop)
        for frame, probability in enumerate(probabilities, frames.start):
            due = [onset for onset in onsets if onset.place <= frame]
            onsets = [onset for onset in onsets if onset.place > frame]
            # Among words only silence parts what is said; before the first one noise does, too.
            due = [onset for onset in due if onset.is_clear or not endpointer.heard_speech]
            if due and due[-1].place >= history:
                back = frame - due[-1].place + round(_LEAD_S / self._seconds_per_frame)
                if endpointer.silence >= back:
                    stop = _Stop(frame, back=back)
                    break
            reason = endpointer.feed(probability)
            if reason is not None and transcript.ends_segments:
                stop = _Stop(frame + 1, reason, onsets=tuple(onsets))
                break
        transcript.events += endpointer.take_events()
        return stop

    def _commit(self, request: Request, reason: EndpointReason) -> None:
        """Makes the live segment final and begins the next."""
        transcript = request.live_transcript
        self._finish_segment(request, reason)
        transcript.endpoint = Endpoint(transcript.frames, transcript.frames * self._seconds_per_frame, reason)
        old, transcript.session = transcript.session, transcript.strategy.open(transcript.hotwords)
        transcript.strategy.close(old)
        transcript.rendering = Rendering()
        transcript.base_frame = transcript.frames

    def _finish_segment(self, request: Request, reason: EndpointReason | None) -> list[Hypothesis]:
        """Adds the live segment to those that are final; its hypotheses, best first."""
        transcript, options = request.live_transcript, request.options
        strategy, session = transcript.strategy, transcript.session
        hypotheses = strategy.n_best(session, options.n_best)
        for warning in strategy.warnings(session):
            if warning not in transcript.warnings:
                transcript.warnings.append(warning)
        best = hypotheses[0]
        transcript.rendering.follow(best, self._tokenizer)
        alternatives = self._alternatives(hypotheses) if options.n_best > 1 else None
        self._add_final(request, best, alternatives, reason)
        return hypotheses

    def _add_final(
        self,
        request: Request,
        best: Hypothesis,
        alternatives: tuple[Alternative, ...] | None,
        reason: EndpointReason | None,
    ) -> None:
        transcript = request.live_transcript
        final, clock = transcript.final, self._clock(request)
        final.tokens += best.tokens
        final.timestamps += tuple(map(clock.seconds, best.frames))
        final.confidences += sum(best.confidences)
        final.score += best.score
        segment = self._segment(request, best, True, alternatives, reason)
        if segment is not None:
            final.segments.append(segment)
            final.text = join_texts([final.text, segment.text])

    def _segment(
        self,
        request: Request,
        best: Hypothesis,
        is_final: bool,
        alternatives: tuple[Alternative, ...] | None = None,
        reason: EndpointReason | None = None,
    ) -> Segment | None:
        """The live part of a transcript; None while it has no text."""
        rendering = request.live_transcript.rendering
        # A segment that was cut off ends where it was.
        clock = self._clock(request, is_cut=reason is not None)
        text = self._tokenizer.finish(rendering.joined)
        if not text:
            return None
        timed: tuple[TimedWord, ...] | None = None
        if request.options.word_timestamps:
            still_open = [clock.word(word) for word in rendering.open_words(best)]
            kept = rendering.settled_timed
            kept += [clock.word(word) for word in rendering.settled[len(kept) :]]
            timed = (*kept, *still_open)
        start, end = extent(best.frames)
        return Segment(
            text,
            start=clock.seconds(start),
            end=clock.seconds(end),
            confidence=sum(best.confidences) / len(best.confidences),
            is_final=is_final,
            words=timed,
            alternatives=alternatives,
            endpoint=reason,
        )

    def _alternatives(self, hypotheses: Sequence[Hypothesis]) -> tuple[Alternative, ...]:
        return tuple(Alternative(self._tokenizer.decode(one.tokens), one.score) for one in hypotheses)

    def stream_output(self, request: Request, finish_reason: FinishReason | None = None) -> RequestOutput:
        """Where a stream stands; final when there is a reason."""
        done = request.samples_received if finish_reason else request.samples_done
        return self._output(request, done, finish_reason)

    def clip_output(self, request: Request) -> RequestOutput:
        """The final output of a clip; a window of a recording keeps its hypothesis."""
        if request.parent_id is not None:
            transcript = request.live_transcript
            request.hypothesis = transcript.strategy.n_best(transcript.session, 1)[0]
            request.warnings = transcript.strategy.warnings(transcript.session)
            return RequestOutput(request.request_id, finished=True, finish_reason="stop")
        return self._output(request, request.samples_received, "stop")

    def pieces(self, hypothesis: Hypothesis) -> tuple[str, ...]:
        """Text of every token."""
        return tuple(self._tokenizer.pieces(hypothesis.tokens))

    def recording_output(self, request: Request, parts: Sequence[Heard], warnings: Sequence[str]) -> RequestOutput:
        """The final output of a recording that was heard in windows."""
        best, pieces = join(parts, self._seconds_per_frame)
        transcript = self.open(request)
        try:
            request.transcript = transcript
            transcript.warnings += warnings
            transcript.rendering = Rendering.of(best, pieces)
            self._add_final(request, best, None, None)
            return self._finished(request, [best], request.samples_received, "stop")
        finally:
            request.transcript = None
            self.close(transcript)

    def _output(self, request: Request, samples_done: int, finish_reason: FinishReason | None) -> RequestOutput:
        transcript = request.live_transcript
        if finish_reason is not None:
            return self._finished(request, self._finish_segment(request, None), samples_done, finish_reason)
        final, live, best = transcript.final, None, Hypothesis()
        if request.options.partials:
            best = transcript.strategy.best(transcript.session)
            transcript.rendering.follow(best, self._tokenizer)
            live = self._segment(request, best, False)
        segments = final.segments if live is None else [*final.segments, live]
        count = len(final.tokens) + len(best.tokens)
        return RequestOutput(
            request_id=request.request_id,
            text=join_texts([final.text, live.text]) if live is not None else final.text,
            tokens=((*final.tokens, *best.tokens),),
            scores=(final.score + best.score,),
            confidence=(final.confidences + sum(best.confidences)) / count if count else None,
            audio_seconds=request.samples_received / self._sample_rate,
            samples_done=samples_done,
            **self._told(request, segments),
        )

    def _finished(
        self, request: Request, hypotheses: Sequence[Hypothesis], samples_done: int, finish_reason: FinishReason
    ) -> RequestOutput:
        """The last output, when all segments are final; `hypotheses` are the last one's."""
        transcript, options = request.live_transcript, request.options
        final, best = transcript.final, hypotheses[0]
        # Alternatives differ in the last segment; those before it have their own.
        head = final.tokens[: len(final.tokens) - len(best.tokens)]
        rest = final.score - best.score
        texts: tuple[str, ...] | None = None
        if options.n_best > 1:
            before = [one.text for one in final.segments if one.endpoint is not None]
            texts = tuple(join_texts([*before, self._tokenizer.decode(one.tokens)]) for one in hypotheses)
        return RequestOutput(
            request_id=request.request_id,
            text=final.text,
            tokens=tuple((*head, *one.tokens) for one in hypotheses),
            scores=tuple(rest + one.score for one in hypotheses),
            finished=True,
            timestamps=final.timestamps,
            confidence=final.confidences / len(final.tokens) if final.tokens else None,
            nbest_texts=texts,
            finish_reason=finish_reason,
            audio_seconds=request.samples_received / self._sample_rate,
            samples_done=samples_done,
            **self._told(request, final.segments),
        )

    def _told(self, request: Request, segments: Sequence[Segment]) -> dict:
        """What segments, endpoints and events say; endpoints and events are told once."""
        transcript = request.live_transcript
        endpoint, transcript.endpoint = transcript.endpoint, None
        events, transcript.events = transcript.events, []
        clock = _Clock(0, self._seconds_per_frame, request.samples_received / self._sample_rate)
        words = None
        if request.options.word_timestamps:
            words = tuple(word for segment in segments for word in segment.words or ())
        speech = tuple(SpeechBoundary(event.kind, clock.seconds(event.frame)) for event in events)
        return {
            "start": segments[0].start if segments else None,
            "end": segments[-1].end if segments else None,
            "words": words,
            "segments": tuple(segments),
            "endpoint": endpoint,
            "speech_events": speech if request.options.vad_events else None,
            "warnings": tuple(transcript.warnings),
        }

    def _clock(self, request: Request, is_cut: bool = False) -> _Clock:
        transcript = request.live_transcript
        end = request.samples_received / self._sample_rate
        if is_cut:
            end = min(end, transcript.frames * self._seconds_per_frame)
        return _Clock(transcript.base_frame, self._seconds_per_frame, end)
