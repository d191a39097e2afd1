"""A path policy of the scenario's own: its text from the plan, made into a class. Checked by the loader, executed only here.

It runs with the few rights that a host keeps (privileges.py). What goes wrong in it is told as the plan's trouble, with the
policy's own file and line.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

from testbed.host.plan import PlanError

MODULE = "policy_of_the_scenario"


def compile_policy(written: str, text: str) -> Callable[[Any], object]:
    """The class that `written` (FILE.py:Class) names in `text`. Raises PlanError when executing it fails."""
    file, _, name = written.rpartition(":")
    module = ModuleType(MODULE)
    module.__file__ = file
    sys.modules[MODULE] = module  # dataclasses look their module up
    try:
        exec(compile(text, file, "exec"), module.__dict__)  # noqa: S102 - it is what the scenario asks for
        found: Callable[[Any], object] = getattr(module, name)
    except Exception as error:
        raise PlanError(f"policy {written}: {described(error, file)}") from error
    return found


def described(error: Exception, file: str) -> str:
    """The error with the last line of `file` that it passed through."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    place = f" ({file} line {lines[-1]})" if lines else ""
    return f"{type(error).__name__}: {error}{place}"
