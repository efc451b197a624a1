"""From a delivery to «shown once»: one transaction of the fleet's mailroom for each batch."""
