"""`/v1/settings/profile` and `/v1/settings/business/profile`: what recipients are shown of the business."""
