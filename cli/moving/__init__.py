"""Check of the configuration of an On-Premises installation: a result for each part."""
