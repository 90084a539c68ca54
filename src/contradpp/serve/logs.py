"""Logs of the server: JSON lines on standard error, what was asked for apart from what went wrong."""

from __future__ import annotations

import json
import logging
import sys
import time


class JsonLines(logging.Formatter):
    """A JSON object per message."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of one record."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        entry = {"time": moment, "level": record.levelname.lower(), "message": record.getMessage()}
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def set_up_logs(*, access: bool = True) -> None:
    """Send our messages and uvicorn's to standard error; the access log's are whole JSON lines already."""
    _handler("contradpp", JsonLines())
    _handler("uvicorn", JsonLines())
    _handler("contradpp.access", logging.Formatter("%(message)s"))
    logging.getLogger("contradpp.access").propagate = False
    logging.getLogger("contradpp.access").setLevel(logging.INFO if access else logging.WARNING)


def _handler(name: str, formatter: logging.Formatter) -> None:
    logger = logging.getLogger(name)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)
