"""Hashes that state is found by."""

from __future__ import annotations

from millstream.kernels.spark_hash import xxhash64


def test_the_hash_of_a_number_is_that_of_spark() -> None:
    found = [xxhash64(i) for i in range(4)]  # as SELECT xxhash64(0), xxhash64(NULL, 1), ... gives
    assert found == [3614696996920510707, -6698625589789238999, 8420071140774656230, 6258084186791473711]
