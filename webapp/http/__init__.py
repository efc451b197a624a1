"""HTTP of the Webapp: requests, responses, errors, checks of values, the API document, server and TLS."""
