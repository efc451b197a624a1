"""Files that go with messages: which there may be, and the directory that holds them."""
