"""The name of before; to be deleted."""

from contradpp.dpp.rank import top_n as top_n
