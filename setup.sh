#!/usr/bin/env bash
# Everything a bare Debian 12 or Ubuntu 24.04 needs: distribution packages, the virtual environment .venv, the port program,
# the compiled transport.
# Run as root or with sudo. Names each step as it starts (minutes in all, the first time); the second run only compares a
# stamp and says nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# What each is for: iproute2 links, routes, queues; mininet its mnexec helper; iptables the delay line; clang, libbpf-dev,
# libc6-dev and linux-libc-dev the port program; gcc and python3-dev the compiled transport; iperf3, mptcpize and frr the
# baselines; the rest captures and the environment.
packages=(
  bash ca-certificates clang ethtool frr gcc iperf3 iproute2 iptables libbpf-dev libc6-dev linux-libc-dev
  mininet mptcpize python3 python3-dev python3-venv tcpdump util-linux
)
wanted_if_available=(bpftool)
tools=(clang ethtool ip ip6tables-restore iperf3 mnexec mptcpize tc tcpdump unshare /usr/lib/frr/bgpd)
python=/usr/bin/python3
log=$(mktemp)
trap 'rm -f "$log"' EXIT

fail() {
  echo "setup.sh: $*" >&2
  exit 1
}

run() { # description, command...: one line when it starts, and everything it said when it fails
  local what=$1
  shift
  echo "setup: $what ..." >&2
  "$@" >"$log" 2>&1 || {
    cat "$log" >&2
    fail "$what failed (see above)"
  }
}

as_root() {
  if [[ $(id -u) -eq 0 ]]; then "$@"; else sudo "$@"; fi
}

not_installed() {
  local package
  for package in "$@"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || echo "$package"
  done
}

keep_frr_off() { # runs start FRR's daemons themselves, in their namespaces; none is to run on the machine (RUNLEVEL: nor without systemd)
  not_installed frr | grep -q . || return 0
  as_root mkdir -p /etc/systemd/system
  as_root ln -sf /dev/null /etc/systemd/system/frr.service
}

install_packages() {
  command -v apt-get >/dev/null || fail "needs apt-get (Debian 12, Ubuntu 24.04); elsewhere install yourself: ${packages[*]}"
  local absent
  mapfile -t absent < <(not_installed "${packages[@]}")
  ((${#absent[@]})) || return 0
  [[ $(id -u) -eq 0 ]] || command -v sudo >/dev/null || fail "installing ${absent[*]} needs root: run it as root, or install sudo"
  run "apt-get update" as_root apt-get -qq update
  local package
  for package in "${wanted_if_available[@]}"; do
    [[ $(apt-cache policy "$package" 2>/dev/null) == *"Candidate: "[0-9v]* ]] && absent+=("$package")
  done
  keep_frr_off
  run "apt-get install ${absent[*]}" \
    as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -qq install --yes --no-install-recommends "${absent[@]}"
}

make_environment() {
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "needs Python 3.11 or later at $python"
  [[ -x .venv/bin/python ]] || run "python3 -m venv" "$python" -m venv --clear .venv
  local pip=(.venv/bin/python -m pip --quiet --disable-pip-version-check --no-input)
  run "pip install" "${pip[@]}" install -r requirements-dev.txt
  # Mininet imports distutils, which Python 3.12 no longer has; setuptools brings it.
  .venv/bin/python -c 'import distutils' 2>/dev/null || run "pip install setuptools" "${pip[@]}" install 'setuptools==80.9.0'
}

stamp() { # changes with anything that a new run of this script would act on
  find testbed/transport -name '*.py' | sort | xargs cat setup.sh requirements.txt requirements-dask.txt requirements-dev.txt <("$python" --version) | sha256sum
}

tools_present() {
  local tool
  for tool in "${tools[@]}"; do
    command -v "$tool" >/dev/null || return 1
  done
}

PATH=$PATH:/usr/sbin:/sbin
if [[ -f .venv/.stamp && $(<.venv/.stamp) == "$(stamp)" ]] && tools_present; then
  exit 0
fi
install_packages
make_environment
run "compiling the port program" .venv/bin/python -m testbed.fabric.bpf.build
run "compiling the transport" .venv/bin/python -m testbed.host.compiled
tools_present || fail "still not on PATH after installing: $(for t in "${tools[@]}"; do command -v "$t" >/dev/null || echo -n "$t "; done)"
stamp >.venv/.stamp
