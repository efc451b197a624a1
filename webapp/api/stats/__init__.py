"""`/v1/stats`: metrics of the Coreapps and counts of the database."""
