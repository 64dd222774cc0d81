"""Disorder: a histogram of how far records lag the newest event time, with eight buckets per power of two.

Distances below 16 microseconds have one bucket each. Above that, a bucket is at most an eighth as wide as its lower
end. A few hundred counts therefore give the lag of any share of the records, and counts of two epochs can be added.
`kernels/intake.py` fills the histogram; watermarks for fractions of the data are computed from it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from millstream.clock import END_OF_TIME

_STEPS = 8
_LOWER = np.array([b if b < _STEPS else (_STEPS + b % _STEPS) << (b // _STEPS - 1) for b in range(_STEPS * 60)])


def buckets(behind: np.ndarray) -> dict[int, int]:
    """Count these distances (microseconds, none negative) by bucket."""
    numbers, counts = np.unique(np.searchsorted(_LOWER, behind, side="right") - 1, return_counts=True)
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))


def upper(bucket: int) -> int:
    """The greatest distance in a bucket.

    >>> [upper(b) for b in (0, 7, 15, 16, 160)]
    [0, 7, 15, 17, 4718591]
    """
    return int(_LOWER[bucket + 1]) - 1 if bucket + 1 < len(_LOWER) else END_OF_TIME


def within(counts: Mapping[int, int], share: float) -> int:
    """A distance that this share of the records did not exceed. Without records, any distance is possible.

    >>> within({0: 90, 16: 9, 160: 1}, 0.9), within({0: 90, 16: 9, 160: 1}, 0.95)
    (0, 17)
    """
    total, so_far = sum(counts.values()), 0
    for bucket in sorted(counts):
        so_far += counts[bucket]
        if so_far >= share * total:
            return upper(bucket)
    return END_OF_TIME
