"""`oasr serve`: starts the server in the foreground."""

import argparse

from oasr_client.commands import common


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the launcher's own arguments.

    Raises:
        MissingExtra: the server part is not installed.
    """
    common.backend("serve", "serve").add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the launcher until it ends and returns its exit status."""
    launcher = common.backend("serve", "serve")
    try:
        return int(launcher.run(args))
    except ImportError as error:
        raise common.missing_extra(error, "serve") from error
