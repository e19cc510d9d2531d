"""The errors of the launcher."""

from oasr_client.errors import OasrError


class LaunchError(OasrError):
    """The server cannot be started, or ended by itself; the text is one sentence for the user."""


class Refused(LaunchError):
    """What the server is asked to serve cannot be served; nothing was started."""

    exit_status = 2


class StartCancelled(Exception):
    """The caller's `cancelled` became true before the server was ready."""
