"""The auction house of `millstream demo`: its flow and its screen."""
