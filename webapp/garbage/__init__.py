"""`/v1/services`: having the Coreapps delete what nobody asks for any more."""
