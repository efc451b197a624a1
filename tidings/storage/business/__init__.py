"""The tables that a business's Webapps and Coreapps share: a module for each family of them."""
