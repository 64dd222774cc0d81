"""Records kept: topic, partition, segment, offset. `Log` is the way in."""

from millstream.log.log import Log
from millstream.log.pending import Ack
from millstream.log.reading import Part
from millstream.log.retention import TrimReport
from millstream.log.topic import PartitionStats, Topic

__all__ = ["Ack", "Log", "Part", "PartitionStats", "Topic", "TrimReport"]
