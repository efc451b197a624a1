"""The device API's client, for whoever is a device: the Coreapp, handsets, programs of others."""
