"""`/v1/settings/profile` and `/v1/settings/business/profile`: the profile of the business that recipients see."""
