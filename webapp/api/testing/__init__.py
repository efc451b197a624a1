"""`/tidings/`, which exists in test mode only: acting as recipients, and failures on demand."""
