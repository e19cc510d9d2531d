"""The subcommands of `oasr`, one module each: `add_arguments(parser)` and `run(args) -> exit status`."""
