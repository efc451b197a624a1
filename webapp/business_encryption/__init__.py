"""`/v1/settings/business/whatsapp_business_encryption`: the business's public key, with which answers of flows come."""
