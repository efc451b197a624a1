"""A live view of an installation from the metrics of its processes: read, compared with the reading before, drawn."""
