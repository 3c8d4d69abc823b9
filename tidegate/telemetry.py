"""Logging, set up once by each process's edge: structlog, JSON in production and readable in a terminal.

Event names are constants such as ``job.accepted``; facts are fields. Never a payload, a secret or a signed URL.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

import orjson
import structlog

from tidegate.settings import Settings


def configure_logging(settings: Settings, *, may_fork: bool = True) -> None:
    """Send structlog's and the standard library's lines to stderr in one format.

    Args:
        settings: tell the format and the level.
        may_fork: whether this process forks while other threads of it may log. One that does not writes JSON in a
            shorter way; the lock of that writer would stay closed in a child that was forked while it was held.
    """
    as_json = settings.log_format == "json" or (settings.log_format == "auto" and not sys.stderr.isatty())
    facts: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    root = logging.getLogger()
    root.handlers = [_handler(facts, as_json=as_json)]
    root.setLevel(settings.log_level)
    if as_json and not may_fork:
        _write_straight(facts, level=root.level)
    else:
        _write_through_logging(facts)


def _handler(facts: Sequence[structlog.typing.Processor], *, as_json: bool) -> logging.Handler:
    """Writes what libraries log, and in a terminal our own lines."""
    renderer: structlog.typing.Processor
    renderer = (
        structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=facts,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                renderer,
            ],
        )
    )
    return handler


def _write_through_logging(facts: Sequence[structlog.typing.Processor]) -> None:
    structlog.configure(
        processors=[*facts, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def _write_straight(facts: Sequence[structlog.typing.Processor], *, level: int) -> None:
    """Past the standard library, which takes several times as long for a line, and there is a line a submission."""
    renderer = structlog.processors.JSONRenderer(serializer=_to_json)
    structlog.configure(
        processors=[*facts, structlog.processors.format_exc_info, renderer],
        logger_factory=structlog.BytesLoggerFactory(sys.stderr.buffer),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=True,
    )


def _to_json(fields: Any, *, default: Callable[[Any], Any]) -> bytes:
    try:
        return orjson.dumps(fields, default=default)
    except orjson.JSONEncodeError:
        # A path that is no UTF-8, say: no line is lost for that.
        return json.dumps(fields, default=default).encode()
