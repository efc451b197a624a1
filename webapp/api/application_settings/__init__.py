"""`/v1/settings/application`: settings that a business changes while the processes run."""
