import io
import threading

from rich.console import Console

from oasr_client.display import Display, parts
from oasr_client.playback import Progress
from oasr_client.session import StreamResponse


def progress(sent_s: float, text: str, resumes: int = 0, segments: list[tuple[str, bool]] | None = None) -> Progress:
    result = None
    if segments is not None:
        result = {"segments": [{"text": text, "is_final": is_final} for text, is_final in segments]}
    return Progress(sent_s, StreamResponse(text, False, result, 0.01, resumes), 0.012)


def console(terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=120, color_system=None)


def shown(to: Console) -> str:
    assert isinstance(to.file, io.StringIO)
    return to.file.getvalue()


def test_elsewhere_than_on_a_terminal_every_new_text_is_a_line() -> None:
    to = console(terminal=False)
    with Display(to) as display:
        assert not display.is_live
        show = display.progress("a.wav")
        for sent_s, text in ((0.64, ""), (1.28, "ONE"), (1.92, "ONE"), (2.56, "ONE TWO")):
            show(progress(sent_s, text))
        show(progress(3.2, "ONE TWO", resumes=1))
        display.done("a.wav")
    assert shown(to).splitlines() == [
        "a.wav    1.28 s  ONE",
        "a.wav    2.56 s  ONE TWO",
        "a.wav  resumed after 3.20 s",
    ]


def test_a_terminal_shows_a_row_for_every_stream() -> None:
    to = console(terminal=True)
    with Display(to) as display:
        assert display.is_live
        display.progress("a.wav")(progress(2.0, "ONE TWO", segments=[("ONE", True), ("TWO", False)]))
        display.progress("b.wav")(progress(4.0, "THREE"))
        # What is drawn of a live table: asked for without waiting for the clock.
        to.print(display._table())
    rows = [line for line in shown(to).splitlines() if "p50 12 ms p99 12 ms" in line]
    assert any("a.wav" in row and "2.0 s" in row and "RTF 0.006" in row and "ONE TWO" in row for row in rows)
    assert any("b.wav" in row and "THREE" in row for row in rows)


def test_many_streams_are_counted_where_they_do_not_fit() -> None:
    to = console(terminal=True)
    display = Display(to)
    for number in range(20):
        display.progress(f"{number}.wav")(progress(1.0, "x"))
    to.print(display._table())
    assert "and 4 more" in shown(to)


def test_threads_may_report_while_the_table_is_drawn() -> None:
    to = console(terminal=True)
    with Display(to) as display:

        def talk(number: int) -> None:
            show = display.progress(f"{number}.wav")
            for step in range(200):
                show(progress(step + 1.0, f"text {step}", resumes=step // 50))
            display.done(f"{number}.wav")

        threads = [threading.Thread(target=talk, args=(number,), daemon=True) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    assert shown(to).count("resumed after") == 8 * 3


def test_what_is_final_is_told_apart() -> None:
    assert parts(progress(1.0, "ONE TWO").response) == ("", "ONE TWO")
    segments = [("ONE", True), ("TWO", True), ("THREE", False)]
    assert parts(progress(1.0, "", segments=segments).response) == ("TWO", "THREE")
    assert parts(progress(1.0, "", segments=[]).response) == ("", "")
