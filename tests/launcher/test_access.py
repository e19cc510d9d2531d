"""Who may call what: the rules of the launcher, without a server."""

import argparse
from pathlib import Path

import pytest

from oasr_backend import serve
from oasr_backend.server.access import Access, access_arguments
from oasr_backend.server.environment import engine_environment
from oasr_backend.server.errors import LaunchError
from oasr_backend.server.install import ServerInstall, request_limit_arguments
from oasr_backend.server.options import ServeOptions
from oasr_backend.server.running import addresses_of
from oasr_backend.server.tls import TlsFiles
from oasr_client.credentials import Credentials, from_command
from oasr_client.errors import UsageError
from tests.server.certificates import Authority

TOKEN = "a-token-of-some-clients"
ADMIN = "a-token-of-an-operator"


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    return parser.parse_args(words)


def restricted(access: Access, flag: str) -> dict[str, str]:
    """The header and value that each part asks for."""
    found = {}
    for argument in access_arguments(access):
        if argument.startswith(flag):
            parts, _, demand = argument.removeprefix(f"{flag}=").partition(":")
            found |= dict.fromkeys(parts.split(","), demand)
    return found


@pytest.mark.parametrize("flag", ["--grpc-restricted-protocol", "--http-restricted-api"])
def test_each_part_asks_for_what_it_should(flag: str) -> None:
    first, second = restricted(Access(), flag), restricted(Access(), flag)
    assert set(first) == {"shared-memory", "model-repository", "trace", "logging"}
    # Nobody knows the value.
    assert first["trace"] != second["trace"]
    found = restricted(Access(TOKEN, allowed=("shared-memory",)), flag)
    guarded = {part for part, demand in found.items() if demand == f"authorization=Bearer {TOKEN}"}
    assert guarded == {"inference", "metadata", "model-config", "statistics", "shared-memory"}
    assert "shared-memory" not in restricted(Access(allowed=("shared-memory",)), flag)
    assert restricted(Access(TOKEN, ADMIN), flag)["model-repository"] == f"authorization=Bearer {ADMIN}"


def test_an_access_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(LaunchError, match="give another"):
        Access(TOKEN, TOKEN)
    with pytest.raises(LaunchError, match="leave --allow out"):
        Access(TOKEN, ADMIN, ("model-repository",))
    with pytest.raises(LaunchError, match="knows no health; choose among shared-memory"):
        Access(allowed=("health",))


def test_tokens_are_not_shown() -> None:
    assert TOKEN not in repr(Access(TOKEN)) + repr(Credentials(TOKEN))


def test_the_token_comes_from_a_file_or_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    monkeypatch.setenv("OASR_TOKEN", "the-one-of-the-environment")
    assert serve.options_from(parsed("--token-file", str(file))).access.token == TOKEN
    assert serve.options_from(parsed()).access.token == "the-one-of-the-environment"
    monkeypatch.setenv("OASR_TOKEN", "")
    assert serve.options_from(parsed()).access.token is None


@pytest.mark.parametrize(
    ("text", "words"), [("", "is empty"), ("short", "5 characters"), ("sixteen,or,more,characters", "other than")]
)
def test_a_token_that_cannot_serve_is_refused_without_showing_it(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    with pytest.raises(LaunchError, match=words) as caught:
        serve.options_from(parsed("--token-file", str(file)))
    assert not text or text not in str(caught.value)
    with pytest.raises(UsageError, match=words):
        from_command({}, tls=False, ca=None, cert=None, key=None, token_file=file)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model-control",), "needs a token of its own"),
        (("--admin-token-file", "x"), "without --model-control"),
        (("--tls-cert", "x"), "needs both --tls-cert and --tls-key"),
        (("--tls-client-ca", "x"), "needs both --tls-cert and --tls-key"),
        (("--tls-cert", "/nowhere", "--tls-key", "/nowhere"), "/nowhere, which is no file"),
        (("--tls-cert", __file__, "--tls-key", __file__), "must be PEM files that belong together"),
        (("--checkpoint", "a", "--model-version", "1=b"), "exclude each other"),
        (("--model-version", "1=a", "--model-version", "1=b"), "1 is given twice"),
    ],
    ids=str,
)
def test_options_that_do_not_fit_are_refused(
    words: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OASR_ADMIN_TOKEN", raising=False)
    with pytest.raises(LaunchError, match=message):
        serve.options_from(parsed(*words))


def test_secrets_do_not_reach_the_models() -> None:
    base = {"OASR_TOKEN": TOKEN, "OASR_ADMIN_TOKEN": ADMIN, "OASR_TLS_CA": "x", "OASR_DTYPE": "float32"}
    found = engine_environment(ServeOptions(model_repository=Path("/x")), ("other",), base)
    assert found["OASR_DTYPE"] == "float32"
    assert not {"OASR_TOKEN", "OASR_ADMIN_TOKEN", "OASR_TLS_CA"} & found.keys()


def test_what_lies_open_on_the_network_is_told(tmp_path: Path) -> None:
    assert serve.exposures(ServeOptions()) == []
    told = " ".join(serve.exposures(ServeOptions(host="0.0.0.0")))
    assert "anybody who reaches gRPC or HTTP" in told and "gRPC is not encrypted" in told
    told = " ".join(serve.exposures(ServeOptions(host="0.0.0.0", access=Access(TOKEN), http_host="127.0.0.1")))
    assert told.startswith("gRPC is not encrypted")
    assert addresses_of(ServeOptions(host="0.0.0.0")).http == "0.0.0.0"
    own = Authority(tmp_path).sign("one.example")
    mutual = ServeOptions(host="0.0.0.0", tls=TlsFiles(own.cert, own.key, own.ca))
    assert addresses_of(mutual).http == "127.0.0.1"
    assert serve.exposures(mutual) == []


def test_request_limits_are_kept_where_the_server_can_and_refused_where_not(tmp_path: Path) -> None:
    binary = tmp_path / "tritonserver"
    install = ServerInstall(binary, binary, binary, binary, ())
    binary.write_bytes(b"--http-port")
    assert request_limit_arguments(install, None) == []
    with pytest.raises(LaunchError, match="cannot limit requests"):
        request_limit_arguments(install, 8)
    binary.write_bytes(b"--http-port --http-max-input-size")
    assert request_limit_arguments(install, None) == ["--http-max-input-size=1073741824"]
    assert request_limit_arguments(install, 8) == ["--http-max-input-size=8388608"]


def test_a_certificate_implies_tls_and_an_empty_variable_is_none(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("")

    def found(environment: dict[str, str]) -> Credentials:
        return from_command(environment, tls=False, ca=None, cert=None, key=None, token_file=None)

    certain = found({"OASR_TLS_CA": str(file), "OASR_TOKEN": "", "OASR_TLS": ""})
    assert (certain.tls, certain.token) == (True, "")
    assert not found({}).tls
    for environment, words in (
        ({"OASR_TLS": "maybe"}, "must be true or false"),
        ({"OASR_TLS_CERT": str(file)}, "needs both"),
        ({"OASR_TLS_CA": "/nowhere"}, "no file that can be read"),
    ):
        with pytest.raises(UsageError, match=words):
            found(environment)


def test_tls_files_must_belong_together(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    one, other = authority.sign("one.example"), authority.sign("two.example")
    assert TlsFiles(one.cert, one.key, one.ca).client_ca == one.ca
    with pytest.raises(LaunchError, match="belong together"):
        TlsFiles(one.cert, other.key)
    with pytest.raises(LaunchError, match="holds no certificate"):
        TlsFiles(one.cert, one.key, one.key)
