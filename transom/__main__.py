"""`python -m transom` is `transom`."""

from __future__ import annotations

from transom.cli.main import main

if __name__ == "__main__":
    main()
