import pytest
from hypothesis import given
from hypothesis import strategies as st

from oasr_client.load.run import Answer, LoadRun, merged
from oasr_client.load.shares import processes_for, shares


@pytest.mark.parametrize(
    ("streams", "chunk_s", "most", "expected"),
    [
        (1, 0.64, 8, 1),
        (128, 0.64, 8, 1),
        (129, 0.64, 8, 2),
        (512, 0.64, 8, 4),
        (5000, 0.64, 8, 8),
        (5000, 0.64, 1, 1),
        (64, 0.04, 8, 8),
        (3, 0.001, 8, 3),
    ],
)
def test_processes_grow_with_the_chunks_of_a_second(streams: int, chunk_s: float, most: int, expected: int) -> None:
    assert processes_for(streams, chunk_s, most) == expected


@given(streams=st.integers(1, 500), processes=st.integers(1, 64))
def test_every_stream_is_of_one_share_and_shares_are_alike(streams: int, processes: int) -> None:
    found = shares(streams, processes)
    assert sorted(number for share in found for number in share) == list(range(streams))
    assert len(found) == min(streams, processes)
    assert max(map(len, found)) - min(map(len, found)) <= 1


def test_parts_make_one_load_with_the_streams_own_numbers() -> None:
    def part(*streams: int, texts: tuple[str | None, ...], gave_up: bool = False) -> LoadRun:
        answers = tuple(Answer(stream, 1.0, 1.0, 2.0) for stream in streams)
        return LoadRun(answers, texts, (), 0.64, (0.5,), gave_up)

    whole = merged(
        [(range(0, 3, 2), part(0, 1, texts=("a", "c"))), (range(1, 3, 2), part(0, texts=(None,), gave_up=True))], 3
    )
    assert whole.texts == ("a", None, "c")
    assert [one.stream for one in whole.answers] == [0, 2, 1]
    assert (len(whole.lags_s), whole.gave_up, whole.chunk_s) == (2, True, 0.64)
