"""`/v1/settings/business/compliance_info`: what the law of some countries has a business say of itself."""
