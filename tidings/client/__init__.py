"""Client of the device API, for the Coreapp, handsets and third-party programs."""
