"""Writes the corpus; run it from the root of the project after a change to what makes it.

python -m tests.images.make
"""

from __future__ import annotations

from tests.images.corpus import FILES, FOLDERS


def main() -> None:
    """Write every file into its folder."""
    for folder, files in FOLDERS.items():
        target = FILES / folder
        target.mkdir(parents=True, exist_ok=True)
        for name, make in files.items():
            (target / name).write_bytes(make())


if __name__ == "__main__":
    main()
