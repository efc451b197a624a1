"""Rate limits that hold for the installation, independent of the number of Webapps."""
