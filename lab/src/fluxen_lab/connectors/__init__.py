"""Real systems for tests and benchmarks of connectors: Java packages from a registry, a Kafka broker of one process."""
