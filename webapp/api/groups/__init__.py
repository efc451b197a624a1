"""`/v1/groups`: groups of the business and their participants."""
