"""What others have written, on the work that Tidings does, beside it and in the same run."""
