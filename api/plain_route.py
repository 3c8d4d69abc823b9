"""Routes that FastAPI documents and stays out of otherwise: for those that are called most."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute


class PlainRoute(APIRoute):
    """A route whose function takes the request, and gives the response itself.

    To find parameters and dependencies and to check and write the answer, FastAPI takes longer than a poll takes in
    all. So nothing is read off the function but its name and docstring: ``responses``, ``response_model`` and
    ``openapi_extra`` tell the rest.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The function."""
        function: Callable[[Request], Coroutine[Any, Any, Response]] = self.endpoint
        return function
