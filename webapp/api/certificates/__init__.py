"""`/v1/certificates`: the API's own certificate, and the authorities that webhook servers are verified against."""
