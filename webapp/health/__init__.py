"""`/v1/health`: is there a connection to the network?"""
