# SPDX-License-Identifier: Apache-2.0
# Sourced by scripts that use files of Ubuntu's archive.
#
# ubuntu_download <folder>: reads lines "path SHA-256", and leaves each file in <folder>, checked; a
# file that is there is not fetched again. Prints their paths. Downloads go the way that apt is
# configured to go (its proxies). UBUNTU_MIRROR: another mirror than archive.ubuntu.com.
ubuntu_download() {
  local mirror=${UBUNTU_MIRROR:-http://archive.ubuntu.com/ubuntu} path sum file
  mkdir -p "$1"
  while read -r path sum; do
    [[ -n $path ]] || continue
    file=$1/${path##*/}
    if ! echo "$sum  $file" | sha256sum --check --status 2>/dev/null; then
      /usr/lib/apt/apt-helper -oAPT::Sandbox::User=root download-file "$mirror/$path" "$file" \
        "SHA256:$sum" >/dev/null || {
        echo "$0: $mirror/$path: cannot be downloaded with SHA-256 $sum; set UBUNTU_MIRROR to a" \
          "mirror that has it" >&2
        return 1
      }
    fi
    echo "$file"
  done
}
