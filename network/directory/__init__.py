"""Who is registered, with which keys, and who asks for them."""
