"""The conformance suite tests what every connector must do, over every transport.

Inherit from it in a test module, and define the endpoint:

    class TestMyConnector(ConnectorConformance):
        @pytest.fixture
        def endpoint(self, tmp_path) -> EndpointUnderTest:
            return MyEndpoint(tmp_path)

A connector whose endpoint keeps the runtime checkpoints and can be shared by key ranges inherits
`AuthoritativeConformance` as well.
"""

from headrace.testing.conformance.base import Conformance
from headrace.testing.conformance.fencing import AuthoritativeConformance
from headrace.testing.conformance.order import OrderConformance
from headrace.testing.conformance.ownership import OwnershipConformance
from headrace.testing.conformance.views import ViewConformance
from headrace.testing.endpoint import EndpointUnderTest

__all__ = ["AuthoritativeConformance", "Conformance", "ConnectorConformance", "EndpointUnderTest"]


class ConnectorConformance(ViewConformance, OrderConformance, OwnershipConformance):
    """Every connector passes these tests."""
