"""`/v1/settings/business/whatsapp_business_encryption`: the public key that encrypts responses of flows."""
