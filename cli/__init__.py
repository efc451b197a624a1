"""The command line: the one place that knows every process, the environment and the terminal."""
