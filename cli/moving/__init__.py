"""Check of the configuration of an On-Premises installation: the fate of each part."""
