"""Clients of Kafka: how brokers are reached, reading, and transactions that another process began."""
