"""Who may call which part of Triton's interface: pure rules, and the arguments that say them to tritonserver."""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from oasr_backend.server.errors import LaunchError
from oasr_client.credentials import HTTP_HEADER

CLIENT_PARTS = ("inference", "metadata", "model-config", "statistics")
"""What clients need; open, or open to the token where there is one. `health` stays open to probes."""

CLOSED_PARTS = ("shared-memory", "model-repository", "trace", "logging")
"""What changes the server or reaches into its machine; closed unless it is asked for."""

_MODEL_CONTROL = "model-repository"
_CLOSED_HEADER = "closed-by-oasr-serve"


@dataclass(frozen=True)
class Access:
    """Who may do what.

    Attributes:
        token: clients must show it; none: whoever reaches the ports may.
        admin_token: who shows it may load and unload models; none: nobody may.
        allowed: those of `CLOSED_PARTS` that clients may use.
    Raises:
        LaunchError: both tokens are the same, or a part is both open to clients and kept for the admin.
    """

    token: str | None = field(default=None, repr=False)
    admin_token: str | None = field(default=None, repr=False)
    allowed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        unknown = [part for part in self.allowed if part not in CLOSED_PARTS]
        if unknown:
            raise LaunchError(f"--allow knows no {', '.join(unknown)}; choose among {', '.join(CLOSED_PARTS)}")
        if self.admin_token is not None:
            if self.admin_token == self.token:
                raise LaunchError("the admin token is the token of the clients, who must not load models; give another")
            if _MODEL_CONTROL in self.allowed:
                raise LaunchError(f"{_MODEL_CONTROL} is for the admin token with --model-control; leave --allow out")

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be seen by others."""
        return tuple(secret for secret in (self.token, self.admin_token) if secret)


def access_arguments(access: Access) -> list[str]:
    """The arguments of tritonserver; what is closed asks for a value that is thrown away here."""
    return [
        f"--{flag}={','.join(parts)}:{header}={value}"
        for parts, header, value in _restricted(access)
        for flag in ("grpc-restricted-protocol", "http-restricted-api")
    ]


def _restricted(access: Access) -> Iterator[tuple[Sequence[str], str, str]]:
    """Groups of parts with the header and the value that each asks for."""
    if access.token:
        yield (*CLIENT_PARTS, *access.allowed), HTTP_HEADER, f"Bearer {access.token}"
    if access.admin_token:
        yield (_MODEL_CONTROL,), HTTP_HEADER, f"Bearer {access.admin_token}"
    closed = [part for part in CLOSED_PARTS if part not in access.allowed]
    if access.admin_token:
        closed.remove(_MODEL_CONTROL)
    if closed:
        yield closed, _CLOSED_HEADER, secrets.token_urlsafe(32)
