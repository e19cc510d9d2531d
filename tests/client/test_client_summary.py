import builtins
from typing import Any

import pytest

from oasr_client.accuracy import error_rates, normalized
from oasr_client.summary import Run


def test_words_and_characters_are_pooled() -> None:
    words, characters = error_rates([("ONE TWO THREE", "ONE TOO THREE FOUR"), ("FIVE SIX", "FIVE")], "none")
    assert (words.substitutions, words.deletions, words.insertions, words.units) == (1, 1, 1, 5)
    assert words.percent == pytest.approx(60.0)
    assert (characters.substitutions, characters.deletions, characters.insertions) == (1, 3, 4)
    assert characters.units == len("ONETWOTHREE") + len("FIVESIX")
    assert words.line == (
        "WER 60.00 %: 3 errors (1 substituted, 1 deleted, 1 inserted) in 5 words of 2 utterances, compared as they are"
    )


def test_what_is_said_where_nothing_was_is_inserted() -> None:
    words, characters = error_rates([("", "TWO WORDS"), ("ONE", ""), ("", "")], "none")
    assert (words.insertions, words.deletions, words.units, words.utterances) == (2, 1, 1, 3)
    assert (characters.insertions, characters.deletions) == (8, 3)
    assert error_rates([("", "")], "none")[0].percent == 0


@pytest.mark.parametrize(
    ("text", "basic"),
    [
        ("Hello,  World!", "hello world"),
        ("DON\u2019T - STOP", "don't stop"),
        ("\uff28\uff49\u3000你好。", "hi 你好"),
        ("", ""),
    ],
)
def test_normalizers(text: str, basic: str) -> None:
    assert normalized(text, "basic") == basic
    assert normalized(f" {text} ", "none") == " ".join(text.split())


def test_case_and_punctuation_count_only_when_asked() -> None:
    pairs = [("Hello, world.", "HELLO WORLD")]
    assert error_rates(pairs, "basic")[0].errors == 0
    assert error_rates(pairs, "none")[0].errors == 2


def run() -> Run:
    results = Run("file")
    for number in range(1, 101):
        results.succeeded("A B", 36.0, [number / 1000], "A B" if number % 2 else None)
    for number in range(12):
        results.failed_at(f"bad{number}.wav")
    return results


def test_a_summary_for_reading() -> None:
    lines = run().summary(60.0).lines
    assert lines[0].startswith("112 files, 12 failed: bad0.wav, bad1.wav")
    assert lines[0].endswith("bad9.wav and 2 more")
    assert lines[1] == "1.000 h of audio (3600.0 s) in 60.0 s: RTFx 60.0"
    assert lines[2] == "latency of a file: p50 50 ms, p90 90 ms, p95 95 ms, p99 99 ms"
    assert lines[3].startswith("WER 0.00 %: 0 errors")
    assert "in 100 words of 50 utterances, case and punctuation ignored" in lines[3]
    assert lines[4].startswith("CER 0.00 %")


def test_a_summary_for_programs() -> None:
    document = run().summary(60.0).document
    assert (document["files"], len(document["failed"]), document["rtfx"]) == (112, 12, 60.0)
    assert set(document["latency_seconds"]) == {"p50", "p90", "p95", "p99"}
    assert document["wer"]["words"] == 100
    assert document["cer"]["characters"] == 100
    assert document["wer"]["normalizer"] == "basic"


def test_a_summary_of_nothing() -> None:
    summary = Run("chunk").summary(0.0)
    assert summary.lines == ["0 files, 0 failed", "0.000 h of audio (0.0 s) in 0.0 s: RTFx 0.0"]
    assert "wer" not in summary.document


def test_without_the_package_for_error_rates_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "jiwer":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    summary = run().summary(60.0)
    assert summary.rates == ()
    assert summary.lines[-1] == 'error rates need jiwer: pip install "oasr-triton[score]"'
