"""The compiled transport is the same transport: every test of the protocol, once more, against the build that hosts use."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.host import compiled

ROOT = Path(__file__).resolve().parents[2]
RUN = f"""
import os, sys
from testbed.host import compiled
assert compiled.use({{}})
from testbed.transport.mrc import requester
assert requester.__file__.endswith(".so"), requester.__file__
import pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "{ROOT}/tests/unit/mrc", "{ROOT}/tests/unit/test_hostile.py"]))
"""
BUILT = Path(compiled.build_for(compiled.fingerprint())).is_dir()


@pytest.mark.timeout(1200)  # all these tests are one here: half a minute, several where others have most of the machine
@pytest.mark.skipif(not BUILT, reason="no compiled transport for these sources: run `make setup`")
def test_the_protocols_tests_pass_on_the_compiled_build() -> None:
    done = subprocess.run([sys.executable, "-c", RUN], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def test_an_edited_source_is_never_shadowed(tmp_path: Path) -> None:
    copy = tmp_path / "transport"
    shutil.copytree(compiled.SOURCES, copy)
    assert compiled.fingerprint(str(copy)) == compiled.fingerprint()
    with (copy / "mrc" / "psn.py").open("a") as file:
        file.write("# edited\n")
    assert compiled.fingerprint(str(copy)) != compiled.fingerprint()


def test_the_sources_can_be_asked_for() -> None:
    assert compiled.use({compiled.PURE: "1"}) is False
    assert os.environ.get(compiled.PURE) is None
