"""What root may do and others may not."""

from __future__ import annotations

import ctypes
import os

_SET_CAPABILITIES = 126 if os.uname().machine == "x86_64" else 91  # the number of the system call
_VERSION_3 = 0x20080522


def drop_privileges() -> None:
    """Let permissions of files hold for this process also if it runs as root, as they do for everybody else."""
    header, nothing = (ctypes.c_uint32 * 2)(_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    if ctypes.CDLL(None, use_errno=True).syscall(_SET_CAPABILITIES, header, nothing) != 0:
        raise OSError(ctypes.get_errno(), "capset")
