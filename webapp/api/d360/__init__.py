"""360dialog's dialect of v1: requests with a key in `D360-API-KEY`, and its paths below `/v1/configs/`."""
