"""``python -m tidegate.cli``, for where the script ``tidegate`` is not on the PATH."""

from tidegate.cli import app

app(prog_name="tidegate")
