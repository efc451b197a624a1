"""`/v1/support`: what somebody who helps wants to know first."""
