"""`/v1/stats`: what the Coreapps count, and what is in the database."""
