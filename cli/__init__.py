"""Command line: the only package that imports every process and reads the environment and the terminal."""
