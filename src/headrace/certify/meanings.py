"""What happens in each scenario, for those who read of them."""

from __future__ import annotations

from headrace.certify.ingest import scenarios as of_ingest
from headrace.certify.scenarios import HOST_LOST, SCENARIOS

MEANINGS = {
    **{one.name: one.about for one in of_ingest.SCENARIOS},
    **{one.name: one.about for one in [*SCENARIOS, HOST_LOST]},
}
