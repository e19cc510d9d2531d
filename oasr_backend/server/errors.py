"""The one error of the launcher."""

from oasr_client.errors import OasrError


class LaunchError(OasrError):
    """The server cannot be started, or ended by itself; the text is one sentence for the user."""
