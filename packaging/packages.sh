# The Debian packages that this tree needs, in one place. Sourced by quickstart.sh, test/run.sh and .ci/run.
# shellcheck shell=bash disable=SC2034  # the lists are used by who sources this

build_packages=(
  g++ cmake ninja-build pkg-config
  libssl-dev libevent-dev libyaml-cpp-dev libspdlog-dev libfmt-dev libcli11-dev libexpected-dev
  nlohmann-json3-dev libc-ares-dev libsystemd-dev libcap-ng-dev
)

# Clients and servers that the proxy is put between.
test_packages=(
  catch2 python3 openssl ca-certificates curl socat
  nginx-light libnginx-mod-stream redis-server redis-tools mosquitto mosquitto-clients
  openssh-server openssh-client postgresql
  strace procps systemd man-db
)

quickstart_packages=(openssl)

ci_packages=(clang-format git)

# Installs those of the named packages that are not there; asks for nothing and touches nothing else.
# RUNLEVEL=1 keeps freshly installed servers from being started (invoke-rc.d(8)): tests start their own.
install_missing() {
  local missing=() package
  for package in "$@"; do
    if [[ $(dpkg-query -W -f '${db:Status-Status} ' "$package" 2>/dev/null) != installed* ]]; then
      missing+=("$package")
    fi
  done
  ((${#missing[@]} > 0)) || return 0

  local as_root=(env)
  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null; then
      echo "missing packages, and neither root nor sudo to install them: ${missing[*]}" >&2
      return 1
    fi
    as_root=(sudo env)
  fi
  echo "installing: ${missing[*]}"
  "${as_root[@]}" apt-get -qq update
  "${as_root[@]}" DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
    apt-get -qq -y --no-install-recommends install "${missing[@]}"
}
