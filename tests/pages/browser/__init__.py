"""Pages in Debian's Chromium, driven by Playwright, against a whole installation: run by `make test-pages`."""
