"""The part of an epoch that runs in the driver."""
