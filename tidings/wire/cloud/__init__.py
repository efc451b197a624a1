"""Facts about the Cloud API that Webapp and Coreapp share: ids, error codes and the encoding of JSON."""
