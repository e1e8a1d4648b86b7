#!/bin/sh
# Installs laneway @VERSION@ for this system: downloads its archive, checks the sum, and puts the program into /usr/local/bin, or into ~/.local/bin without the rights for it.
#
#   curl -fsSL @ADDRESS@/install.sh | sh
#
# Run from a directory with the files of a release, it takes them from there. LANEWAY_FROM names another directory or address, LANEWAY_BIN=DIR installs there.
set -eu

main() {
  from=@ADDRESS@
  case $0 in
    install.sh | */install.sh) [ ! -f "$(dirname "$0")/SHA256SUMS" ] || from=$(dirname "$0") ;;
  esac
  from=${LANEWAY_FROM:-$from}
  version=@VERSION@
  system=$(uname -s | tr '[:upper:]' '[:lower:]')
  case $(uname -m) in
    x86_64 | amd64) machine=amd64 ;;
    aarch64 | arm64) machine=arm64 ;;
    *) fail "there is no program for $(uname -m); build it from a checkout: make build" ;;
  esac
  case $system in
    linux | darwin) ;;
    *) fail "there is no program for $system here; on Windows use scoop, or unpack the archive" ;;
  esac
  name=laneway_${version}_${system}_$machine
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  fetch "$name.tar.gz"
  fetch SHA256SUMS
  # Only the line of this archive: the other files are not here.
  awk -v file="$name.tar.gz" '$2 == file' "$work/SHA256SUMS" >"$work/sum"
  [ -s "$work/sum" ] || fail "SHA256SUMS of $from does not have $name.tar.gz; nothing was installed"
  (cd "$work" && check sum >/dev/null 2>&1) || fail "the sum of $name.tar.gz is wrong: the download is damaged or was changed; nothing was installed"
  tar -xzf "$work/$name.tar.gz" -C "$work"

  bin=${LANEWAY_BIN:-}
  if [ -z "$bin" ]; then
    bin=/usr/local/bin
    [ -w "$bin" ] || bin=$HOME/.local/bin
  fi
  mkdir -p "$bin"
  # A new file in place of the old one, so that a running gateway keeps its program.
  cp "$work/$name/laneway" "$bin/.laneway.new"
  chmod 0755 "$bin/.laneway.new"
  mv -f "$bin/.laneway.new" "$bin/laneway"
  echo "laneway $version is in $bin"
  case ":$PATH:" in
    *":$bin:"*) ;;
    *) echo "add it to your PATH: export PATH=\"$bin:\$PATH\"" ;;
  esac
  echo "next: laneway agents detect, then laneway serve"
}

fetch() {
  case $from in
    *://*)
      if command -v curl >/dev/null; then
        curl -fsSL --proto '=https' --tlsv1.2 -o "$work/$1" "$from/$1"
      elif command -v wget >/dev/null; then
        wget -q --https-only -O "$work/$1" "$from/$1"
      else
        fail "neither curl nor wget was found"
      fi || fail "$from/$1 could not be downloaded"
      ;;
    *) cp "$from/$1" "$work/$1" || fail "$from has no $1" ;;
  esac
}

check() {
  if command -v sha256sum >/dev/null; then sha256sum -c "$1"; else shasum -a 256 -c "$1"; fi
}

fail() {
  echo "install.sh: $1" >&2
  exit 1
}

main "$@"
