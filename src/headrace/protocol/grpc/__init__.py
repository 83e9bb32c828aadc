"""The protocol over gRPC: `proto/headrace/materialize/v1/materialize.proto`."""

from headrace.protocol.grpc.client import GrpcConnector
from headrace.protocol.grpc.server import GrpcServer

__all__ = ["GrpcConnector", "GrpcServer"]
