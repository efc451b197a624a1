"""`/v1/support`: information for support staff."""
