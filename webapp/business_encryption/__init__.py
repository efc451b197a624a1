"""`/v1/settings/business/whatsapp_business_encryption`: the business's public key, used to encrypt responses of
flows.
"""
