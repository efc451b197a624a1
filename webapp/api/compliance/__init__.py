"""`/v1/settings/business/compliance_info`: information that some countries require a business to publish."""
