"""Commands, one module each: `add_arguments(parser)`, and `run(options)`, which returns the exit status."""
