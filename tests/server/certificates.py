"""Certificates of authorities made up for a test."""

from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Identity:
    """A certificate, its key and that of the authority that signed it, as PEM files."""

    cert: Path
    key: Path
    ca: Path


class Authority:
    """Signs certificates; its files lie in `directory`."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._authority = trustme.CA()
        self.ca = directory / "ca.pem"
        self._authority.cert_pem.write_to_path(self.ca)

    def sign(self, *names: str) -> Identity:
        """A certificate for host names, addresses or an e-mail address."""
        signed = self._authority.issue_cert(*names)
        base = self._directory / names[0].replace("@", "-")
        identity = Identity(base.with_suffix(".crt"), base.with_suffix(".key"), self.ca)
        identity.cert.write_bytes(b"".join(part.bytes() for part in signed.cert_chain_pems))
        signed.private_key_pem.write_to_path(identity.key)
        return identity
