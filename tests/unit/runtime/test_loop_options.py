"""Options of a flow's loop that make no sense are refused before anything runs."""

from __future__ import annotations

import pytest

from millstream.errors import DefinitionError
from millstream.runtime.flow_assembly import LoopOptions


def test_an_unknown_placement_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(DefinitionError, match="there is no placement 'inlin'") as refused:
        LoopOptions("inlin")
    assert refused.value.hint == "did you mean 'inline'?"


@pytest.mark.parametrize("shards", [0, -1])
def test_a_flow_needs_a_shard(shards: int) -> None:
    with pytest.raises(DefinitionError, match=f"at least one shard, not {shards}"):
        LoopOptions("spread", shards)
