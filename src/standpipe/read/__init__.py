"""The read place: settings for reading encoded bytes ahead of decoding. Native code does the reading."""

from standpipe.read.ahead import ReadAhead, read_threads
from standpipe.read.policy import read_policy
