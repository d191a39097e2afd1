"""Mininet node, interface and link classes for nodes that already exist as named namespaces.

Mininet keeps its object model and its CLI; the kernel's state is made in bulk by network.py, not one shell command at a
time. A node's shell starts with its first `cmd`. What Mininet would log and pass over raises KernelError here.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any

from mininet.link import Intf, Link
from mininet.node import Node

from testbed.errors import KernelError
from testbed.fabric.namespaces import Namespaces


class FabricIntf(Intf):  # type: ignore[misc]
    """A port that the fabric made and configured; the object only names it."""

    def config(self, **_params: Any) -> dict[str, Any]:
        return {}

    def isUp(self, setUp: bool = False) -> bool:  # noqa: N802 - Mininet's names
        """IFF_UP from the kernel. `setUp` is refused: faults go through Fabric, which also restores what `down` loses."""
        if setUp:
            raise KernelError(str(self.node), f"{self.name} up", "set link states through the fabric's faults")
        out, err, status = self.node.pexec(["ip", "-o", "link", "show", "dev", self.name])
        if status != 0:
            raise KernelError(str(self.node), f"show {self.name}", str(err).strip())
        return ",UP" in str(out) or "<UP" in str(out)


class FabricLink(Link):  # type: ignore[misc]
    """A link between two FabricNodes. Makes nothing: the pair exists, or is made right after in one batch."""

    def __init__(self, node1: Any, node2: Any, port1: int, port2: int, **params: Any) -> None:
        self.intf1 = FabricIntf(f"{node1.name}-eth{port1}", node=node1, port=port1, link=self, mac=params.get("addr1"))
        self.intf2 = FabricIntf(f"{node2.name}-eth{port2}", node=node2, port=port2, link=self, mac=params.get("addr2"))

    def delete(self) -> None:
        """Interfaces go with their namespaces."""

    def stop(self) -> None:
        """As `delete`."""


class FabricNode(Node):  # type: ignore[misc]
    """A host or a switch. `namespaces` holds its namespace, made before."""

    def __init__(self, name: str, namespaces: Namespaces, **params: Any) -> None:
        self._namespaces = namespaces
        self._waiting_for_use = True
        params["inNamespace"] = True
        super().__init__(name, **params)
        self._waiting_for_use = False

    @classmethod
    def checkSetup(cls) -> None:  # noqa: N802
        """Tools are doctor's business."""

    def startShell(self, mnopts: str | None = None) -> None:  # noqa: N802
        """Nothing at construction; a bash inside the namespace once something needs it."""
        if self._waiting_for_use:
            return
        with self._namespaces.inside(self.name):
            super().startShell("-cd" if mnopts is None else mnopts)

    def mountPrivateDirs(self) -> None:  # noqa: N802
        if self.privateDirs:
            raise KernelError(self.name, "privateDirs", "not supported")

    def _popen(self, cmd: list[str], **params: Any) -> subprocess.Popen[Any]:
        """Every child of a node starts in the node's namespace, so mnexec needs neither `-n` nor `-a PID`."""
        if cmd[:1] == ["mnexec"] and "n" in cmd[1]:
            cmd = [cmd[0], cmd[1].replace("n", ""), *cmd[2:]]
        with self._namespaces.inside(self.name):
            child: subprocess.Popen[Any] = super()._popen(cmd, **params)
        return child

    def popen(self, *args: Any, shell: bool = False, **kwargs: Any) -> subprocess.Popen[Any]:
        """As Mininet's; its `shell=True` needs SHELL in the environment, which services, cron and CI do not set."""
        kwargs.setdefault("mncmd", ["mnexec", "-d"])
        if shell:
            words = args[0] if isinstance(args[0], list) else args
            args = ([os.environ.get("SHELL", "/bin/sh"), "-c", " ".join(words)],)
        child: subprocess.Popen[Any] = super().popen(*args, **kwargs)
        return child

    def sendCmd(self, *args: Any, **kwargs: Any) -> None:  # noqa: N802
        self._need_shell()
        super().sendCmd(*args, **kwargs)

    def cmd(self, *args: Any, **kwargs: Any) -> str:
        self._need_shell()
        return str(super().cmd(*args, **kwargs))

    def _need_shell(self) -> None:
        if self.shell is None:
            self.startShell()

    def addIntf(self, intf: Any, port: int | None = None, moveIntfFn: Any = None) -> None:  # noqa: N802, N803, ARG002
        """The port is in this namespace from birth."""
        super().addIntf(intf, port=port, moveIntfFn=lambda *_: None)

    def config(self, **_params: Any) -> dict[str, Any]:
        return {}

    def IP(self, intf: Any = None) -> str | None:  # noqa: N802
        """The node's own address, which Mininet's CLI puts in place of its name: a host's inner address."""
        return str(self.params["inner"]) if "inner" in self.params else super().IP(intf)


class FabricSwitch(FabricNode):
    """A switch that only forwards what its static table names: nothing to start, nothing to connect."""

    dpid = ""

    def start(self, _controllers: list[Any]) -> None:
        """Static from the first packet."""

    def connected(self) -> bool:
        return True
