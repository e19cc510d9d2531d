"""TLS of the gRPC port: its files, and the arguments that name them to tritonserver."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from oasr_backend.server.errors import LaunchError


@dataclass(frozen=True)
class TlsFiles:
    """PEM files.

    Attributes:
        cert: the server's certificate, with those between it and its authority behind it.
        key: its key, without a password.
        client_ca: authorities; clients must show a certificate of one of them (mutual TLS). None: they need none.
    Raises:
        LaunchError: a file is missing or no PEM, or the key is that of another certificate.
    """

    cert: Path
    key: Path
    client_ca: Path | None = None

    def __post_init__(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for name, file in (("cert", self.cert), ("key", self.key), ("client-ca", self.client_ca)):
            if file is not None and not file.is_file():
                raise LaunchError(f"--tls-{name} names {file}, which is no file")
        try:
            # Without a password of its own the library would ask for one on the terminal.
            context.load_cert_chain(self.cert, self.key, password="")
        except (OSError, ValueError) as error:
            raise LaunchError(
                f"the certificate {self.cert} and the key {self.key} cannot be used ({_cause(error)}); they must be "
                "PEM files that belong together, the key without a password"
            ) from None
        if self.client_ca is not None:
            try:
                context.load_verify_locations(self.client_ca)
            except (OSError, ValueError) as error:
                raise LaunchError(f"--tls-client-ca {self.client_ca} holds no certificate ({_cause(error)})") from None


def tls_arguments(files: TlsFiles) -> list[str]:
    """The arguments of tritonserver, which runs in a directory of its own."""
    arguments = [f"--grpc-server-cert={files.cert.resolve()}", f"--grpc-server-key={files.key.resolve()}"]
    if files.client_ca is None:
        return [*arguments, "--grpc-use-ssl=true"]
    return [*arguments, "--grpc-use-ssl-mutual=true", f"--grpc-root-cert={files.client_ca.resolve()}"]


def _cause(error: Exception) -> str:
    return (error.reason if isinstance(error, ssl.SSLError) else "") or type(error).__name__
