"""What a connector says of transactions that are sent again, over gRPC."""

from __future__ import annotations

import pytest

from headrace.protocol.grpc import specs
from headrace.protocol.grpc.gen import materialize_pb2 as pb
from headrace.protocol.messages import Delivery, Validated, ValidatedBinding


@pytest.mark.parametrize("delivery", Delivery)
def test_it_arrives(delivery: Delivery) -> None:
    validated = Validated((ValidatedBinding({}, ("x",), False, delivery),))
    sent = specs.encode_validated(validated).SerializeToString()
    assert specs.decode_validated(pb.ValidateResponse.FromString(sent)) == validated


def test_nothing_and_what_is_not_known_are_not_counted_on() -> None:
    for binding in (pb.ValidateResponse.Binding(), pb.ValidateResponse.Binding.FromString(b"\x20\x63")):
        (decoded,) = specs.decode_validated(pb.ValidateResponse(bindings=[binding])).bindings
        assert decoded.delivery is Delivery.REPEATED
