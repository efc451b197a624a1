"""`/v1/configs/templates`: the message templates of a business."""
