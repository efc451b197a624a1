"""Tables that a business's Webapps and Coreapps share: one module per group of tables."""
