"""Word times through the real server, streamed and offline, over both protocols."""

import pytest

from oasr_backend.serve import RunningServer
from oasr_backend.utils.paths import assets_dir
from oasr_client import OfflineClient, StreamingClient, audio
from oasr_client.errors import InvalidRequest

CLIP = assets_dir() / "clips" / "digits.flac"
TEXT = ["SEVEN", "THREE", "NINE", "TWO", "ZERO", "FIVE"]


def address(server: RunningServer, protocol: str) -> str:
    return server.grpc_url if protocol == "grpc" else server.http_url


def assert_words(result: dict, seconds: float) -> None:
    (segment,) = result["segments"]
    words = segment["words"]
    assert [word["word"] for word in words] == TEXT
    starts = [word["start"] for word in words]
    assert starts == sorted(starts)
    assert all(word["start"] < word["end"] <= seconds and 0 < word["confidence"] <= 1 for word in words)
    assert (segment["start"], segment["end"]) == (words[0]["start"], words[-1]["end"])


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_words_are_there_when_asked_for(server: RunningServer, protocol: str) -> None:
    samples = audio.read(CLIP)
    with StreamingClient(address(server, protocol), protocol) as client:
        with client.stream(options={"word_timestamps": True}, want_result=True) as stream:
            for chunk in audio.chunks(samples, 300):
                partial = stream.send(chunk)
            final = stream.finish()
        assert partial.result is not None
        assert final.result is not None
        assert_words(final.result, audio.seconds(samples))
        with client.stream(want_result=True) as stream:
            stream.send(samples)
            plain = stream.finish()
        assert plain.result is not None
        assert "words" not in plain.result["segments"][0]
        with (
            pytest.raises(InvalidRequest, match="word_timestamps"),
            client.stream(options={"word_timestamps": "perhaps"}) as stream,
        ):
            stream.send(samples)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_options_reach_the_offline_models(server: RunningServer, protocol: str) -> None:
    with OfflineClient(address(server, protocol), protocol) as client:
        options = {"word_timestamps": True}
        done = client.transcribe_samples(audio.read(CLIP), options=options, want_result=True)
        assert done.result is not None
        assert_words(done.result, audio.seconds(audio.read(CLIP)))
        done = client.transcribe_file(CLIP, options=options, want_result=True)
        assert done.result is not None
        assert_words(done.result, audio.seconds(audio.read(CLIP)))
        with pytest.raises(
            InvalidRequest, match=r"unknown option beams; valid here: .+, decode_method, n_best, word_timestamps"
        ):
            client.transcribe_file(CLIP, options={"beams": 3})
