"""Releases as their users install them: the wheel with pipx, in an empty directory, on a bare Debian."""
