"""The Cloud API in front of the same services: requests in, responses out (docs/cloud-api.md).

A request passes through `facade`, which finds the object and the edge that its path names, then through one handler.
"""
