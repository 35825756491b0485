#!/usr/bin/env bash
# Installs a release and puts it first in PATH. The download must have the checksum that the
# release lists.
set -euo pipefail
if [ -n "$ASSAY_DIRECTORY" ]; then
	test -x "$ASSAY_DIRECTORY/assay-run" || { echo "::error::there is no assay-run in $ASSAY_DIRECTORY"; exit 1; }
	echo "$ASSAY_DIRECTORY" >> "$GITHUB_PATH"
	exit 0
fi
case $(uname -m) in
x86_64) arch=amd64 ;;
aarch64 | arm64) arch=arm64 ;;
*) echo "::error::there is no release for $(uname -m)"; exit 1 ;;
esac
[ "$(uname -s)" = Linux ] || { echo "::error::assay-run can record on Linux only, not on $(uname -s)"; exit 1; }
dir=${RUNNER_TEMP:-/tmp}/assay-run
mkdir -p "$dir"
cd "$dir"
base=$ASSAY_RELEASES/download/$ASSAY_VERSION
[ "$ASSAY_VERSION" != latest ] || base=$ASSAY_RELEASES/latest/download
fetch() { curl --fail --silent --show-error --location --retry 3 --output "$2" "$base/$1"; }
fetch SHA256SUMS SHA256SUMS
archive=$(awk '{print $2}' SHA256SUMS | grep -E "^assay-run_.*_linux_$arch\.tar\.gz$")
fetch "$archive" "$archive"
grep -F "  $archive" SHA256SUMS | sha256sum --check --quiet
tar --strip-components 1 -xzf "$archive"
echo "$dir/bin" >> "$GITHUB_PATH"
"$dir/bin/assay-run" --version
