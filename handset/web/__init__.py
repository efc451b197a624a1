"""Handset as a page in the browser: the phones of one process, with their chats."""
