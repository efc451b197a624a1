"""The business's own number: its registration, its keys and their backup."""
