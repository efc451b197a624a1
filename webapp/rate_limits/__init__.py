"""Rate limits that hold for the installation, however many Webapps share the load."""
