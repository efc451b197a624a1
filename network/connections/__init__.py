"""Live connections of devices: their transports, logins, frames and windows."""
