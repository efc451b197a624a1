"""`/v1/services`: have the Coreapps delete expired messages and media."""
