"""`ip -batch` and `tc -batch` inside a node's namespace: many settings, one process, and the failing line named."""

from __future__ import annotations

import re
from collections.abc import Sequence
from subprocess import CompletedProcess

from testbed.errors import KernelError
from testbed.fabric import tools
from testbed.fabric.namespaces import Namespaces

_FAILED_LINE = re.compile(r"Command failed -:(\d+)")


def run(tool: str, lines: Sequence[str], namespaces: Namespaces, node: str | None) -> None:
    """Feed `lines` to `tool` ("ip" or "tc") in `node`'s namespace, or in the sandbox's own when None.

    KernelError with the node, the line that failed and the kernel's words; RunError when the tool was killed. Lines before have
    taken effect.
    """
    if not lines:
        return
    if node is None:
        done = _run(tool, lines)
    else:
        with namespaces.inside(node):
            done = _run(tool, lines)
    if done.returncode != 0 or done.stderr:
        raise _error(node or "sandbox", tool, lines, done.stderr)


def _run(tool: str, lines: Sequence[str]) -> CompletedProcess[str]:
    return tools.run([tool, "-batch", "-"], "\n".join(lines) + "\n")


def _error(node: str, tool: str, lines: Sequence[str], stderr: str) -> KernelError:
    failed = _FAILED_LINE.search(stderr)
    operation = tool if failed is None else f"{tool} {lines[int(failed.group(1)) - 1]}"
    message = " ".join(_FAILED_LINE.sub("", stderr).split()) or "failed without a message"
    return KernelError(node, operation, message)
