"""What a client shows a server, and how it knows the server: token, TLS, certificates."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from oasr_client.errors import UsageError

TOKEN_VARIABLE = "OASR_TOKEN"
VARIABLES = (TOKEN_VARIABLE, "OASR_TLS", "OASR_TLS_CA", "OASR_TLS_CERT", "OASR_TLS_KEY")
"""What commands read of the environment."""

HTTP_HEADER = "authorization"
GRPC_HEADER = f"triton-grpc-protocol-{HTTP_HEADER}"
"""Triton looks for the header of a restricted gRPC protocol under this prefix."""

_SHORTEST_TOKEN = 16
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")


@dataclass(frozen=True)
class Credentials:
    """How to connect; the default is plaintext without a token.

    Attributes:
        token: what a server that asks for one expects; not shown in any text.
        tls: encrypt the connection and check the server's certificate. Over HTTP this needs a proxy in front of the
            server that terminates it.
        ca: PEM file of the authorities to trust instead of those that are built in.
        cert: PEM file of the client's own certificate, for servers that ask for one.
        key: PEM file of its key.
    Raises:
        ValueError: a token of fewer than 16 characters or with others than letters, digits and `._~+/=-`;
            certificates without `tls`; one of `cert` and `key` alone; a file that cannot be read.
    """

    token: str = field(default="", repr=False)
    tls: bool = False
    ca: str | Path | None = None
    cert: str | Path | None = None
    key: str | Path | None = None

    def __post_init__(self) -> None:
        if self.token:
            check_token(self.token)
        if (self.cert is None) != (self.key is None):
            raise ValueError("a client certificate needs both, cert and key")
        for name in ("ca", "cert", "key"):
            file = getattr(self, name)
            if file is None:
                continue
            if not self.tls:
                raise ValueError(f"{name} is given without tls; set tls, or leave it out")
            if not os.access(file, os.R_OK) or not os.path.isfile(file):
                raise ValueError(f"{name} names {file}, which is no file that can be read")

    @property
    def grpc_headers(self) -> dict[str, str]:
        return {GRPC_HEADER: f"Bearer {self.token}"} if self.token else {}

    @property
    def http_headers(self) -> dict[str, str]:
        return {HTTP_HEADER: f"Bearer {self.token}"} if self.token else {}


ANONYMOUS = Credentials()


def check_token(token: str) -> str:
    """Returns the token; raises ValueError, without showing it, for one that is too short or cannot travel."""
    if not _TOKEN.fullmatch(token):
        raise ValueError(
            "the token holds characters other than letters, digits and ._~+/=-; make one with: openssl rand -hex 32"
        )
    if len(token) < _SHORTEST_TOKEN:
        raise ValueError(
            f"the token has {len(token)} characters, fewer than {_SHORTEST_TOKEN}; make one with: openssl rand -hex 32"
        )
    return token


def read_token(file: str | Path) -> str:
    """The token in a file, without the white space around it; raises ValueError for a file that holds none."""
    try:
        token = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"the token file {file} cannot be read ({type(error).__name__})") from None
    if not token:
        raise ValueError(f"the token file {file} is empty")
    return check_token(token)


def from_command(
    environment: Mapping[str, str],
    *,
    tls: bool,
    ca: Path | None,
    cert: Path | None,
    key: Path | None,
    token_file: Path | None,
) -> Credentials:
    """The credentials that a command's arguments and, where they are silent, the environment ask for.

    A certificate implies TLS; an empty variable counts as none. Raises UsageError.
    """
    files = {
        name: given or environment.get(f"OASR_TLS_{name.upper()}") or None
        for name, given in (("ca", ca), ("cert", cert), ("key", key))
    }
    try:
        token = read_token(token_file) if token_file else environment.get(TOKEN_VARIABLE, "").strip()
        wanted = tls or _flag("OASR_TLS", environment.get("OASR_TLS", ""))
        return Credentials(token, wanted or any(files.values()), **files)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _flag(name: str, text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in ("1", "true", "yes", "on"):
        return True
    if lowered in ("", "0", "false", "no", "off"):
        return False
    raise ValueError(f"{name} is {text!r}; it must be true or false")
