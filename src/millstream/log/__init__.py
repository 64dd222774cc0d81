"""Records kept: topic, partition, segment, offset. `Log` is the way in."""

from millstream.log.append_ack import Ack
from millstream.log.log import Log
from millstream.log.reader import Part
from millstream.log.retention import TrimReport
from millstream.log.topic import PartitionStats, Topic

__all__ = ["Ack", "Log", "Part", "PartitionStats", "Topic", "TrimReport"]
