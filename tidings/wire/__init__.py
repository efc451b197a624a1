"""What goes between processes: the frames, and the connections that carry them."""
