"""A whole installation as real processes, load on it, a webhook for it, and the books that are balanced afterwards."""
