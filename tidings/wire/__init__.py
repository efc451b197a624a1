"""Contracts between processes: frames, message content, ids, and the connections that carry frames."""
