"""Groups as a recipient sees them: sender keys received and distributed, messages encrypted once for all."""
